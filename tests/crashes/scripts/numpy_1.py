"""A table that was cut, with numpy only."""
import numpy as np

np.save("x.npy", np.arange(12).reshape(3, 4))
with open("y.npy", "wb") as f:
    f.write(open("x.npy", "rb").read()[:-30])

weights = np.zeros(4)
x = np.load("x.npy")
for i in range(100):
    weights -= 0.001 * x.T @ (x @ weights - 1)
print(weights.round(4))
y = np.load("y.npy")  # here
