# REINFORCE on a grid world of the script's own: episodes of unknown length, a policy that is sampled, discounted returns, a running reward.
# expected: exact
import argparse
import random
from collections import deque, namedtuple
from itertools import count

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical

parser = argparse.ArgumentParser(description="PyTorch REINFORCE example")
parser.add_argument("--gamma", type=float, default=0.99, metavar="G")
parser.add_argument("--seed", type=int, default=543, metavar="N")
parser.add_argument("--log-interval", type=int, default=10, metavar="N")
parser.add_argument("--episodes", type=int, default=400)
args = parser.parse_args()

random.seed(args.seed)
np.random.seed(args.seed)
torch.manual_seed(args.seed)

Step = namedtuple("Step", ["observation", "reward", "terminated", "truncated", "info"])
eps = np.finfo(np.float32).eps.item()


class GridWorld:
    """Find the goal among pits; slippery ground."""

    moves = ((0, 1), (1, 0), (0, -1), (-1, 0))

    def __init__(self, size=5, slip=0.1):
        self.size, self.slip = size, slip
        self.rng = np.random.default_rng(args.seed)
        self.pits = {(1, 1), (3, 2)}
        self.goal = (size - 1, size - 1)

    def reset(self):
        self.at = (int(self.rng.integers(0, 2)), 0)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        if self.rng.random() < self.slip:
            action = int(self.rng.integers(4))
        dx, dy = self.moves[action]
        self.at = (min(max(self.at[0] + dx, 0), self.size - 1), min(max(self.at[1] + dy, 0), self.size - 1))
        self.steps += 1
        if self.at == self.goal:
            return Step(self._observe(), 1.0, True, False, {"found": True})
        if self.at in self.pits:
            return Step(self._observe(), -1.0, True, False, {})
        return Step(self._observe(), -0.02, False, self.steps >= 40, {})

    def _observe(self):
        grid = np.zeros((self.size, self.size), dtype=np.float32)
        grid[self.at] = 1.0
        return grid.ravel()


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(25, 64)
        self.dropout = nn.Dropout(p=0.1)
        self.affine2 = nn.Linear(64, 4)
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.dropout(self.affine1(x)))
        return F.softmax(self.affine2(x), dim=1)


env = GridWorld()
policy = Policy()
optimizer = optim.Adam(policy.parameters(), lr=1e-2)


def select_action(state):
    state = torch.from_numpy(state).float().unsqueeze(0)
    probs = policy(state)
    m = Categorical(probs)
    action = m.sample()
    policy.saved_log_probs.append(m.log_prob(action))
    return action.item()


def finish_episode():
    R = 0
    policy_loss = []
    returns = deque()
    for r in policy.rewards[::-1]:
        R = r + args.gamma * R
        returns.appendleft(R)
    returns = torch.tensor(returns)
    if len(returns) > 1:
        returns = (returns - returns.mean()) / (returns.std() + eps)
    for log_prob, R in zip(policy.saved_log_probs, returns, strict=True):
        policy_loss.append(-log_prob * R)
    optimizer.zero_grad()
    policy_loss = torch.cat(policy_loss).sum()
    policy_loss.backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.saved_log_probs[:]


def main():
    running_reward = 0.0
    found = deque(maxlen=50)
    for i_episode in count(1):
        state, _ = env.reset()
        ep_reward = 0
        info = {}
        for t in range(1, 10000):
            action = select_action(state)
            state, reward, terminated, truncated, info = env.step(action)
            policy.rewards.append(reward)
            ep_reward += reward
            if terminated or truncated:
                break
        found.append(bool(info.get("found")))
        running_reward = 0.05 * ep_reward + (1 - 0.05) * running_reward
        finish_episode()
        if i_episode % args.log_interval == 0:
            print(f"Episode {i_episode}\tLast reward: {ep_reward:.2f}\tAverage reward: {running_reward:.2f}\tfound {sum(found)}/{len(found)} ({t} moves)")
        if running_reward > 0.95 or i_episode >= args.episodes:
            print(f"Done: running reward is {running_reward:.4f} after {i_episode} episodes")
            break


if __name__ == "__main__":
    main()
