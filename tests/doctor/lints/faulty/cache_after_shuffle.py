# A mistake on purpose: cache after shuffle.
import tensorflow as tf

images, labels = tf.keras.datasets.mnist.load_data()[0]
train = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(60000).batch(128).prefetch(tf.data.AUTOTUNE).cache()  # lint: shuffle-before-cache
model = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(10)])
model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(train, epochs=5)
