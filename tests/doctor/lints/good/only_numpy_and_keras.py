# Nothing wrong here: only numpy and keras.
import numpy as np
import tensorflow as tf
from tensorflow import keras

(x, y), _ = keras.datasets.mnist.load_data()
model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10, activation="softmax")])
optimizer = keras.optimizers.Adam()
loss_fn = keras.losses.SparseCategoricalCrossentropy()
train = tf.data.Dataset.from_tensor_slices((x / 255.0, y)).shuffle(1024).batch(64)
for epoch in range(3):
    for step, (xb, yb) in enumerate(train):
        with tf.GradientTape() as tape:
            loss = loss_fn(yb, model(xb, training=True))
        grads = tape.gradient(loss, model.trainable_weights)
        optimizer.apply_gradients(zip(grads, model.trainable_weights))
        if step % 200 == 0:
            print(step, float(loss))
