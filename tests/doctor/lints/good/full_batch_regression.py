# Nothing wrong here: full batch regression.
import torch

x = torch.linspace(-1, 1, 100).unsqueeze(1)
y = 3 * x + 1
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for epoch in range(200):
    loss = ((model(x) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    print(epoch, loss.item())
torch.save(model.state_dict(), "line.pt")
