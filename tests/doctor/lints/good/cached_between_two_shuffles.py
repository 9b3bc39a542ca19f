# Nothing wrong here: files are shuffled once, samples in each epoch.
import tensorflow as tf

files = tf.data.Dataset.list_files("*.tfrecord").shuffle(100)
train = files.interleave(tf.data.TFRecordDataset).cache()
train = train.shuffle(10000).batch(64)
short = tf.data.Dataset.range(100000).shuffle(1000).take(500).cache().batch(10)
