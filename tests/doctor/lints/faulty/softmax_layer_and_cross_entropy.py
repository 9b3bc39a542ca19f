# A mistake on purpose: softmax layer and cross entropy.
import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3), nn.Softmax(dim=1))
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
X, y = torch.randn(150, 4), torch.randint(0, 3, (150,))
for epoch in range(100):
    y_pred = model(X)
    loss = loss_fn(y_pred, y)  # lint: softmax-before-loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
