"""What lies on a frame's value stack, told from its bytecode alone:
intermediate values of an expression can hold tensors that no name reaches, so an image is only taken where
there are none. CPython 3.9 to 3.13; what is not understood counts as an intermediate value.
"""

from __future__ import annotations

import dis

_LOADS = frozenset(
    """
    LOAD_CONST LOAD_FAST LOAD_GLOBAL LOAD_NAME LOAD_DEREF LOAD_CLASSDEREF LOAD_CLOSURE PUSH_NULL
    LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR LOAD_FAST_LOAD_FAST LOAD_BUILD_CLASS LOAD_ASSERTION_ERROR
    LOAD_FROM_DICT_OR_GLOBALS LOAD_FROM_DICT_OR_DEREF LOAD_LOCALS LOAD_SMALL_INT LOAD_COMMON_CONSTANT
""".split()
)
# take from the stack and put nothing on it
_POPS = frozenset(
    """
    POP_TOP STORE_FAST STORE_GLOBAL STORE_NAME STORE_DEREF STORE_ATTR STORE_SUBSCR STORE_SLICE
    STORE_FAST_STORE_FAST DELETE_FAST DELETE_NAME DELETE_GLOBAL DELETE_DEREF DELETE_ATTR DELETE_SUBSCR
    RETURN_VALUE RETURN_CONST POP_BLOCK SETUP_FINALLY SETUP_ASYNC_WITH NOP RESUME CACHE EXTENDED_ARG MAKE_CELL
    COPY_FREE_VARS KW_NAMES PRECALL JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT JUMP_ABSOLUTE
    LIST_APPEND SET_ADD MAP_ADD LIST_EXTEND SET_UPDATE DICT_UPDATE DICT_MERGE END_FOR POP_EXCEPT
    SETUP_ANNOTATIONS GEN_START RETURN_GENERATOR RAISE_VARARGS RERAISE PRINT_EXPR IMPORT_STAR ASYNC_GEN_WRAP
    POP_ITER NOT_TAKEN
""".split()
)
_CALLS = frozenset(
    """
    CALL CALL_FUNCTION CALL_METHOD CALL_FUNCTION_KW CALL_KW CALL_FUNCTION_EX LOAD_ATTR BINARY_OP COMPARE_OP
    BINARY_SUBSCR FOR_ITER SEND UNARY_NOT GET_ITER CONTAINS_OP
""".split()
)
_ENDS = frozenset(
    """
    RETURN_VALUE RETURN_CONST RAISE_VARARGS RERAISE JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT
    JUMP_ABSOLUTE
""".split()
)
_CLEAN = frozenset(
    (
        *_LOADS,
        "GET_ITER",
        "GET_YIELD_FROM_ITER",
        "BEFORE_WITH",
        "SETUP_WITH",
        "LOAD_METHOD",
        "LOAD_ATTR",
        "PUSH_EXC_INFO",
    )
)
# put one more on the stack and leave what is there; so do displays that begin empty: `losses = []`
_PUSHES = frozenset(
    "IMPORT_FROM GET_LEN GET_ANEXT MATCH_MAPPING MATCH_SEQUENCE MATCH_KEYS WITH_EXCEPT_START".split()
)
_ROTATES = {"ROT_TWO": 2, "ROT_THREE": 3, "ROT_FOUR": 4}
_read: dict = {}  # id of a code -> (the code, what was read from it)


class _Read:
    """One code object: before each instruction, what made the values on the stack; and where loops begin."""

    def __init__(self, code: object) -> None:
        self.instructions = list(dis.get_instructions(code))
        self.index = {ins.offset: i for i, ins in enumerate(self.instructions)}
        # a frame that calls stands in the cache behind its instruction
        for offset in range(0, len(code.co_code), 2):
            self.index.setdefault(offset, self.index.get(offset - 2, 0))
        self.stacks: dict = {}
        self.loops = {ins.argval for ins in self.instructions if _jumps(ins) and ins.argval <= ins.offset}
        self._run([(0, ())])
        # Python 3.11 and newer; before, blocks are jumps
        for entry in getattr(dis.Bytecode(code), "exception_entries", ()):
            below = next(
                (
                    s
                    for at, s in self.stacks.items()
                    if entry.start <= at < entry.end and len(s) >= entry.depth
                ),
                None,
            )
            kept = ("?",) * entry.depth if below is None else below[:entry.depth]
            self._run([(entry.target, kept + ("?",) * (1 + entry.lasti))])

    def _run(self, todo: list) -> None:
        while todo:
            self._follow(*todo.pop(), todo)

    def _follow(self, offset: int, stack: tuple, todo: list) -> None:
        for ins in self.instructions[self.index[offset]:]:
            known = self.stacks.get(ins.offset)
            if known is not None:
                stack = _either(known, stack)
                if stack == known:
                    return
            self.stacks[ins.offset] = stack
            if _jumps(ins):
                todo.append((ins.argval, _after(ins, stack, True)))
            if ins.opname in _ENDS:
                return
            stack = _after(ins, stack, False)


def _either(one: tuple, other: tuple) -> tuple:
    """What may lie on the stack where two ways meet: the worse of the two."""
    if len(one) != len(other):
        return ("?",) * max(len(one), len(other))
    return tuple(b if a in _CLEAN else a for a, b in zip(one, other))  # noqa: B905 - Python 3.9


def holds_values(frame: object, at_line: bool) -> bool:
    """Whether intermediate values lie on this frame's stack:
    at the start of a line, or while a call that it makes is running."""
    return _held(frame, at_line) != []


def collects(frame: object) -> bool:
    """Whether all that lies there is one list that is being made, as by the call of a comprehension:
    `[train(k) for k in folds]`."""
    return _held(frame, False) == ["BUILD_LIST"]


def _held(frame: object, at_line: bool) -> list | None:
    """What made the intermediate values; None: it cannot be told."""
    try:
        read = _of(frame.f_code)
        ins = read.instructions[read.index[frame.f_lasti]]
        stack = read.stacks[ins.offset]
        if not at_line and ins.opname in _CALLS:
            stack = stack[:len(stack) - max(0, 1 - _effect(ins, False))]
        return [tag for tag in stack if tag not in _CLEAN]
    except (KeyError, IndexError, ValueError, TypeError):
        return None


def at_loop(frame: object) -> bool:
    """Whether the frame stands where one of its loops begins anew."""
    return frame.f_lasti in _of(frame.f_code).loops


def call_at(code: object, offset: int) -> int:
    """The same offset for a call, however Python went about it:
    until it is warm, and while anything is traced, a frame stands at CALL, later on at PRECALL (3.11), or in
    the cache behind."""
    ops = code.co_code
    while offset > 0 and ops[offset] == _CACHE:
        offset -= 2
    if ops[offset] == _PRECALL:
        offset += 2
        while ops[offset] == _CACHE:
            offset += 2
    return offset


_CACHE, _PRECALL = dis.opmap.get("CACHE", -1), dis.opmap.get("PRECALL", -1)


def _of(code: object) -> _Read:
    entry = _read.get(id(code))
    if entry is None or entry[0] is not code:
        entry = _read[id(code)] = (code, _Read(code))
    return entry[1]


def _jumps(ins: object) -> bool:
    return ins.opcode in dis.hasjrel or ins.opcode in dis.hasjabs


def _effect(ins: object, jump: bool) -> int:
    return dis.stack_effect(ins.opcode, ins.arg if ins.opcode >= dis.HAVE_ARGUMENT else None, jump=jump)


def _after(ins: object, stack: tuple, jump: bool) -> tuple:
    op, effect = ins.opname, _effect(ins, jump)
    if op in _LOADS:
        return stack + (op,) * effect
    if op in ("BEFORE_WITH", "SETUP_WITH") and not jump:
        return (*stack[:-1], op, op)
    if op == "SETUP_FINALLY" and jump:  # before Python 3.11: what was handled so far, and the error
        return stack + ("PUSH_EXC_INFO",) * 3 + ("?",) * (effect - 3)
    if op == "FOR_ITER" and not jump:
        return (*stack, "value")  # an element of the iterator, about to be stored
    if op in ("SWAP", "ROT_N") or op in _ROTATES:
        return _turned(op, ins.arg, stack)
    if op in ("COPY", "DUP_TOP"):
        return (*stack, stack[-(ins.arg if op == "COPY" else 1)])
    if op == "DUP_TOP_TWO":
        return stack + stack[-2:]
    if op in _POPS or jump:
        return stack[:len(stack) + effect] if effect <= 0 else stack + ("?",) * effect
    if effect > 0:
        if op in _PUSHES or (op.startswith("BUILD_") and not ins.arg):
            return stack + (op,) * effect
        return stack[:-1] + (op,) * (len(stack) + effect - len(stack[:-1]))
    if op in ("POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE") or op.startswith(("POP_JUMP", "JUMP_IF")):
        return stack[:len(stack) + effect]
    return (*stack[:len(stack) + effect - 1], op) if len(stack) + effect > 0 else ()


def _turned(op: str, arg: int, stack: tuple) -> tuple:
    s = list(stack)
    if op == "SWAP":
        s[-1], s[-arg] = s[-arg], s[-1]
    else:
        s.insert(len(s) - _ROTATES.get(op, arg or 0), s.pop())
    return tuple(s)
