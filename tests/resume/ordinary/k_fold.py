# k-fold cross-validation: a fresh model, optimizer and loaders for each fold; results gathered and printed as a table.
# expected: exact
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

torch.manual_seed(16)
X = torch.randn(600, 8)
Y = (X @ torch.randn(8, 1) + 0.5 * torch.randn(600, 1))
dataset = TensorDataset(X, Y)


def k_fold(n, k, seed):
    order = np.random.RandomState(seed).permutation(n)
    parts = np.array_split(order, k)
    for i in range(k):
        yield np.concatenate([p for j, p in enumerate(parts) if j != i]), parts[i]


def reset_weights(m):
    for layer in m.children():
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()


results = {}
for fold, (train_ids, test_ids) in enumerate(k_fold(600, 5, 1)):
    print(f"FOLD {fold}")
    trainloader = DataLoader(dataset, batch_size=16, sampler=SubsetRandomSampler(train_ids))
    testloader = DataLoader(dataset, batch_size=40, sampler=SubsetRandomSampler(test_ids))
    network = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    network.apply(reset_weights)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for epoch in range(8):
        current = 0.0
        for i, (inputs, targets) in enumerate(trainloader):
            optimizer.zero_grad()
            loss = nn.functional.l1_loss(network(inputs), targets)
            loss.backward()
            optimizer.step()
            current += loss.item()
        print("  epoch %d loss %.5f" % (epoch + 1, current / len(trainloader)), flush=True)
    torch.save(network.state_dict(), f"./model-fold-{fold}.pth")
    network.eval()
    with torch.no_grad():
        results[fold] = float(np.mean([nn.functional.l1_loss(network(a), b).item() for a, b in testloader]))
print("RESULTS")
for key, value in results.items():
    print(f"Fold {key}: {value:.6f}")
print(f"Average: {sum(results.values()) / len(results):.6f}")
