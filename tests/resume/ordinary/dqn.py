# Deep Q-learning on a small hand-made world: replay buffer of tuples, epsilon greedy, target network, episodes of any length.
# short: yes
# expected: exact
import math
import random
from collections import deque, namedtuple
import torch
import torch.nn as nn
import torch.optim as optim

random.seed(0)
torch.manual_seed(0)
Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))


class Corridor:
    """Walk to the right end; slippery."""

    def reset(self):
        self.at, self.t = 0, 0
        return self.obs()

    def obs(self):
        return torch.tensor([[self.at / 10, self.t / 40, math.sin(self.at)]])

    def step(self, action):
        self.t += 1
        move = 1 if action == 1 else -1
        if random.random() < 0.1:
            move = -move
        self.at = max(0, self.at + move)
        done = self.at >= 10 or self.t >= 40
        return self.obs(), 1.0 if self.at >= 10 else -0.02, done


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, n):
        return random.sample(self.memory, n)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, x):
        return self.net(x)


policy_net, target_net = DQN(), DQN()
target_net.load_state_dict(policy_net.state_dict())
optimizer = optim.AdamW(policy_net.parameters(), lr=1e-3, amsgrad=True)
memory, steps_done, env = ReplayMemory(500), 0, Corridor()


def select_action(state):
    global steps_done
    eps = 0.05 + 0.85 * math.exp(-steps_done / 300)
    steps_done += 1
    if random.random() > eps:
        with torch.no_grad():
            return policy_net(state).max(1).indices.view(1, 1)
    return torch.tensor([[random.randrange(2)]])


def optimize_model(batch_size=32):
    if len(memory) < batch_size:
        return None
    batch = Transition(*zip(*memory.sample(batch_size)))
    mask = torch.tensor([s is not None for s in batch.next_state])
    next_states = torch.cat([s for s in batch.next_state if s is not None])
    q = policy_net(torch.cat(batch.state)).gather(1, torch.cat(batch.action))
    nxt = torch.zeros(batch_size)
    with torch.no_grad():
        nxt[mask] = target_net(next_states).max(1).values
    loss = nn.SmoothL1Loss()(q, (nxt * 0.98 + torch.cat(batch.reward)).unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    return loss


returns = []
for episode in range(45):
    state, total, done = env.reset(), 0.0, False
    while not done:
        action = select_action(state)
        nxt, reward, done = env.step(action.item())
        total += reward
        memory.push(state, action, None if done else nxt, torch.tensor([reward]))
        state = nxt
        optimize_model()
        target = target_net.state_dict()
        source = policy_net.state_dict()
        for key in source:
            target[key] = source[key] * 0.01 + target[key] * 0.99
        target_net.load_state_dict(target)
    returns.append(total)
    print(f"episode {episode} return {total:.2f} mean {sum(returns[-10:]) / len(returns[-10:]):.3f} steps {steps_done}")
torch.save(policy_net.state_dict(), "policy.pt")
