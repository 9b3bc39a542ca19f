# A mistake on purpose: random images cached.
import tensorflow as tf


def augment(image, label):
    return tf.image.random_flip_left_right(image), label


train = tf.data.Dataset.list_files("train/*.png").map(lambda p: (tf.io.decode_png(tf.io.read_file(p)), 0))
train = train.map(augment)
train = train.cache()  # lint: shuffle-before-cache
train = train.shuffle(1000).batch(32)
