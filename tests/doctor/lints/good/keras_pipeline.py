# Nothing wrong here: keras pipeline.
import tensorflow as tf

raw = tf.data.TFRecordDataset("train.tfrecord")
train = raw.map(lambda r: tf.io.parse_tensor(r, tf.float32)).cache().shuffle(10000).batch(64).prefetch(2)
valid = tf.data.TFRecordDataset("valid.tfrecord").batch(64).cache()
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(train, validation_data=valid, epochs=5)
