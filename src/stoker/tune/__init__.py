"""The tuner: measure where the time of an unmodified training goes, forecast what would be faster, find it,
prove it, or refuse.

card (the machine) · trial (one start) · model (loader, step and memory models, forecasts; pure) · rules
(`judge(facts, card, reading) -> Findings`; pure; its parts: findings, view, causes, feeding, costs,
actions, diffs, refusals, tips, reading, places) · search (all of it) · race (process groups, by SIGSTOP and
SIGCONT) · guard · batch · keep ($STOKER_HOME/settings/) · report, picture (text, JSON, SVG) · limit
(`--fail-if`). The texts of causes and refusals are only in causes.py and refusals.py; the planted-fault
tests use them.
"""
