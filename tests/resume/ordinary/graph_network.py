# A graph convolution by hand: sparse adjacency, semi-supervised masks, early stopping with patience.
# expected: exact
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(19)
n, classes = 240, 4
label = torch.randint(0, classes, (n,))
prob = torch.where(label[:, None] == label[None], 0.06, 0.008)
adj = torch.bernoulli(torch.triu(prob, 1))
adj = adj + adj.T + torch.eye(n)
deg = adj.sum(1).pow(-0.5)
a_hat = (deg[:, None] * adj * deg[None]).to_sparse()
features = F.one_hot(label, classes).float() * 0.3 + torch.randn(n, classes)
perm = torch.randperm(n)
idx_train, idx_val, idx_test = perm[:60], perm[60:140], perm[140:]


class GraphConvolution(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(i, o))
        self.bias = nn.Parameter(torch.zeros(o))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, a):
        return torch.spmm(a, x @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.gc1, self.gc2 = GraphConvolution(classes, 32), GraphConvolution(32, classes)

    def forward(self, x, a):
        x = F.dropout(F.relu(self.gc1(x, a)), 0.5, training=self.training)
        return F.log_softmax(self.gc2(x, a), dim=1)


def accuracy(out, y):
    return (out.max(1)[1].type_as(y) == y).double().sum() / len(y)


model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
best, wait = 0, 0
for epoch in range(700):
    model.train()
    optimizer.zero_grad()
    output = model(features, a_hat)
    loss_train = F.nll_loss(output[idx_train], label[idx_train])
    loss_train.backward()
    optimizer.step()
    model.eval()
    output = model(features, a_hat)
    loss_val, acc_val = F.nll_loss(output[idx_val], label[idx_val]), accuracy(output[idx_val], label[idx_val])
    if acc_val > best:
        best, wait = acc_val, 0
        torch.save(model.state_dict(), "gcn_best.pkl")
    else:
        wait += 1
    if epoch % 20 == 0:
        print('Epoch: {:04d}'.format(epoch + 1), 'loss_train: {:.4f}'.format(loss_train.item()), 'loss_val: {:.4f}'.format(loss_val.item()), 'acc_val: {:.4f}'.format(acc_val.item()))
    if wait > 300:
        break
model.load_state_dict(torch.load("gcn_best.pkl"))
print("Test accuracy", accuracy(model(features, a_hat)[idx_test], label[idx_test]).item(), "stopped at", epoch)
