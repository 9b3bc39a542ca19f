"""Which commands may write files to their folder: all but those whose programs only wait, look and send
messages. Pure."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Sequence

_SHELL = re.compile(r"(ba|da|z|k|a)?sh")
_SHELL_TEXT = re.compile(r"-[a-z]*c")
_SUBSTITUTION = re.compile(r"\$\(([^()`]*)\)|`([^`]*)`")
_PUNCTUATION = "();<>|&\n"
_NO_FILE = ("/dev/null", "/dev/stdout", "/dev/stderr")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.S)
_OPTION = re.compile(r"-(?!S|-split).*|[\d.]+[smhd]?")  # env -S runs a text
# wrappers and words of the shell that come before a program
_BEFORE = frozenset(
    "! { command do elif else env exec if nice nohup setsid then time timeout until watch while".split()
)
_BUILTINS = """: [ break cd continue done echo exit export false fi for kill printf pwd read return set shift
    test true wait }"""
_WAIT_AND_LOOK = """basename cat cut date df dirname du expr free grep head hostname htop id jq ls nproc nvtop
    pgrep ping pkill ps seq sleep stat tail top tr uname uptime wc who whoami"""
_SEND = "aplay logger mail mailx msmtp notify-send paplay sendmail spd-say ssmtp wall write"
_WRITE_NOTHING = frozenset(f"{_BUILTINS} {_WAIT_AND_LOOK} {_SEND}".split())
_STOKER = frozenset("attach help keep logs note ps rm run show start stop sweep tag top wait".split())
# arguments with which a program writes a file, or starts another program
_WRITES_WITH = {
    "curl": re.compile(
        r"-\w*[cDJKoO].*|--(alt|conf|cookie-jar|create|dump|etag|hsts|libcurl|out|remote|stderr|trace).*"
    ),
    "ntfy": re.compile(r"sub\w*|done|--wait-cmd.*"),
    "nvidia-smi": re.compile(r"-\w*f.*|--filename.*"),
}


def may_write(command: Sequence[str]) -> bool:
    """False if all programs of the command are known to write no file to the working folder: such as
    `sleep 60`, or `sh -c 'stoker wait base; mail ...'`. A program that is not known here may write."""
    words = _program(command)
    if not words:
        return False
    folder, name = os.path.split(words[0])
    if folder and not os.path.isabs(folder):
        return True
    if _SHELL.fullmatch(name):
        return _shell_may_write(words[1:])
    if name == "stoker":  # a run that it starts is judged by itself
        return "".join(words[1:2]) not in _STOKER
    if name in _WRITES_WITH:
        return any(_WRITES_WITH[name].fullmatch(word) for word in words[1:])
    return name not in _WRITE_NOTHING


def _program(words: Sequence[str]) -> list[str]:
    """The words from the program on, without wrappers and assignments."""
    rest, wrapped = list(words), False
    while rest:
        if rest[0] in _BEFORE:
            wrapped = True
        elif not _ASSIGNMENT.fullmatch(rest[0]) and not (wrapped and _OPTION.fullmatch(rest[0])):
            break
        del rest[0]
    return rest


def _shell_may_write(words: Sequence[str]) -> bool:
    """Of the arguments of a shell: True unless they are `-c TEXT` with a harmless text."""
    for word, text in itertools.pairwise(words):
        if not word.startswith("-"):
            return True
        if _SHELL_TEXT.fullmatch(word):
            return _text_may_write(text)
    return True


def _text_may_write(text: str) -> bool:
    """Of a text for a shell. True for all that is not understood."""
    text = text.replace("\\\n", " ")
    while inner := _SUBSTITUTION.search(text):
        if _text_may_write(inner[1] or inner[2] or ""):
            return True
        text = f"{text[: inner.start()]}x{text[inner.end() :]}"
    if any(mark in text for mark in ("$(", "`", "$'")):
        return True
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_PUNCTUATION)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        return _tokens_may_write(list(lexer))
    except ValueError:  # a quote without an end
        return True


def _tokens_may_write(tokens: list[str]) -> bool:
    words: list[str] = []
    rest = iter(tokens)
    for token in rest:
        if _is_word(token):
            words.append(token)
        elif "<" in token or ">" in token:
            if not _is_harmless(token, next(rest, "")):
                return True
        else:
            if may_write(words):
                return True
            words = []
    return may_write(words) or any(token.startswith("#") for token in tokens)  # a comment hides its quotes


def _is_word(token: str) -> bool:
    return not token or not set(token) <= set(_PUNCTUATION)


def _is_harmless(redirection: str, target: str) -> bool:
    """True if the redirection writes no file."""
    if redirection == "<":
        return _is_word(target)
    to_descriptor = redirection == ">&" and (target.isdigit() or target == "-")
    return to_descriptor or (redirection in {">", ">>", "&>", ">&"} and target in _NO_FILE)
