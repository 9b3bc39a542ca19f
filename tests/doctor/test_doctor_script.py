"""What the doctor reads out of scripts: what it must say, and where it must hold its tongue."""

import os
import sys
import textwrap
import venv
from pathlib import Path

import pytest

from stoker.doctor import python, script, source
from stoker.doctor.reader import Surroundings

SUBJECTS = Path(__file__).parents[3] / "shared" / "subjects"


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    where = tmp_path_factory.mktemp("bare") / "v"
    venv.create(where, with_pip=False, symlinks=True)
    return where / "bin" / "python"


@pytest.fixture
def look(tmp_path, bare):
    """look(text, *command, gpu=..., files=..., **env) -> findings about a script with that text."""
    def _look(text, *command, gpu=False, files=(), **env):
        for name in files:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("")
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(text))
        env = {"HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"} | env
        read = source.family(path, [str(tmp_path)])
        modules = {i.top for s in read for i in s.imports} | set(script.implied(read))
        answer = python.ask(str(bare), tmp_path, env, modules=modules, path=[str(tmp_path)], compiles=path if read[0].problem else None)
        assert isinstance(answer, python.Answer)
        return list(script.look(read, Surroundings(tmp_path, env, ("train.py", *command), answer, not gpu)))
    return _look


def _told(findings, topic):
    return [(f.level, f.file, f.line) for f in findings if f.topic == topic]


def test_missing_imports_with_line_and_name_for_pip(look):
    found = look("""\
        import os, json
        import cv2
        from sklearn.svm import SVC
        """)
    assert _told(found, "import") == [("fail", "train.py", 2), ("fail", "train.py", 3)]
    assert "pip install opencv-python" in found[0].hint and "pip install scikit-learn" in found[1].hint


@pytest.mark.parametrize("text", [
    "try:\n    import nosuch\nexcept ImportError:\n    nosuch = None\n",
    "try:\n    import nosuch\nexcept (ModuleNotFoundError, AttributeError):\n    pass\n",
    "try:\n    import nosuch\nexcept Exception as e:\n    print(e)\n",
    "try:\n    import nosuch\nexcept:\n    pass\n",
    "try:\n    import json\nexcept ImportError:\n    import nosuch\n",
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import nosuch\n",
    "import typing\nif typing.TYPE_CHECKING:\n    from nosuch import x\n",
    "import sys\nif sys.platform == 'win32':\n    import nosuch\n",
    "from contextlib import suppress\nwith suppress(ImportError):\n    import nosuch\n",
    "from . import nosuch\nfrom .nosuch import x\n",
    "from __future__ import annotations\n",
    "from space import thing\n",  # a namespace package
    "import space.thing\n",
    "import local\nfrom pkg import part\nimport pkg.part as p\n",
    "import os.path, xml.etree.ElementTree\n",
    "match 1:\n    case 2:\n        import nosuch\n",
])
def test_no_false_alarm_about_imports(look, text):
    found = look(text, files=("space/thing.py", "local.py", "pkg/__init__.py", "pkg/part.py"))
    assert [f for f in found if f.level in ("fail", "warn")] == []


def test_an_import_that_raises_again_or_stands_under_main_is_needed(look):
    found = look("""\
        try:
            import nosuch
        except ImportError:
            raise
        if __name__ == "__main__":
            import other_missing
            def later():
                import third_missing
        """)
    assert _told(found, "import") == [("fail", "train.py", 2), ("fail", "train.py", 6), ("note", "train.py", 8)]


def test_local_files_are_followed_one_level(look, tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "net/__init__.py").write_text("from .layers import Layer\n")
    (tmp_path / "net/model.py").write_text("import missing_in_model\n")
    (tmp_path / "helper.py").write_text("\nimport missing_in_helper\nimport deeper\n")
    (tmp_path / "deeper.py").write_text("import missing_in_deeper\n")
    found = look("import helper\nfrom net.model import Net\n")
    assert sorted(_told(found, "import")) == [("fail", "helper.py", 2), ("fail", "net/model.py", 1)]


def test_a_changed_search_path_makes_it_a_warning(look):
    found = look("import sys\nsys.path.append('..')\nimport somewhere\n")
    assert _told(found, "import") == [("warn", "train.py", 3)]


def test_tensorboard_is_needed_by_a_module_of_torch(look, tmp_path):
    (tmp_path / "torch/utils/tensorboard").mkdir(parents=True)
    found = look("from torch.utils.tensorboard import SummaryWriter\n")
    assert _told(found, "import") == [("fail", "train.py", 1)] and "has no tensorboard" in found[0].message


def test_syntax_is_judged_by_the_users_python(look):
    assert _told(look("x = 1\nprint 'old'\n"), "syntax") == [("fail", "train.py", 2)]


CUDA = [
    "model.cuda()", "x = x.to('cuda')", "d = torch.device('cuda:0')", "x = torch.zeros(3, device='cuda')", "device = 'cuda'",
    "torch.cuda.set_device(0)", "dist.init_process_group('nccl')", "dist.init_process_group(backend='nccl')", "m = torch.load('x', map_location='cuda')",
    "p.add_argument('--device', default='cuda')", "world_size = torch.cuda.device_count()", "mp.spawn(main, nprocs=torch.cuda.device_count())",
    "model.to(local_rank)", "self.model.to(self.gpu_id)",
]
GUARDED = [
    "device = 'cuda' if torch.cuda.is_available() else 'cpu'", "d = torch.device('cuda' if torch.cuda.is_available() else 'cpu')",
    "if args.cuda: model.cuda()", "if torch.cuda.is_available():\n    torch.cuda.set_device(0)", "torch.cuda.is_available() and model.cuda()",
    "if use_gpu:\n    x = x.to('cuda')", "x.to(device)", "torch.cuda.manual_seed(1)", "name = 'cuda'", "torch.backends.cuda.matmul.allow_tf32 = True",
    "dist.init_process_group('nccl' if torch.cuda.is_available() else 'gloo')", "print('cuda')", "if device_type == 'cuda':\n    x = x.pin_memory().to('cuda')", "torch.cuda.is_available()", "torch.version.cuda",
]


@pytest.mark.parametrize("line", CUDA)
def test_hard_coded_cuda_where_there_is_no_gpu(look, line):
    assert _told(look(f"import os\n\n{line}\n"), "cuda") == [("warn", "train.py", 3)]
    assert _told(look(f"import os\n\n{line}\n", gpu=True), "cuda") == []


@pytest.mark.parametrize("line", GUARDED)
def test_cuda_behind_a_question_is_fine(look, line):
    assert _told(look(f"{line}\n"), "cuda") == []


FATAL = [
    "model = torch.nn.Linear(2, 2).cuda()", "model.to('cuda')", "model.cuda(0)", "x = torch.zeros(3).to('cuda:0').sum()",
    "dist.init_process_group('nccl')", "dist.init_process_group(backend='nccl', rank=0)",
    "def main():\n    model.cuda()\n\nif __name__ == '__main__':\n    main()", "def build():\n    return Net().cuda()\n\ntrain(build())",
    "for i in range(3):\n    print(i)\nmodel.cuda()", "if not ready:\n    raise ValueError('no')\nmodel.cuda()",
    "def f():\n    if x:\n        return 1\nf()\nmodel.cuda()",
]
MAYBE = [
    "def later():\n    model.cuda()", "def main():\n    model.cuda()\nif x:\n    main()", "for x in data:\n    x.cuda()", "while True:\n    x.cuda()",
    "if args.test:\n    sys.exit()\nmodel.cuda()", "def stop():\n    exit(0)\ndef other():\n    stop()\nif args.test:\n    other()\nmodel.cuda()",
    "def main():\n    if args.test:\n        return\n    model.cuda()\nmain()", "@app\ndef main():\n    model.cuda()\nmain()",
    "def main():\n    yield model.cuda()\nmain()", "try:\n    model.cuda()\nexcept RuntimeError:\n    pass", "move = lambda x: x.cuda()",
    "criterion = torch.nn.CrossEntropyLoss().cuda()", "criterion.cuda()", "print(torch.cuda.is_available())\nmodel.cuda()", "torch.Tensor.cuda = same\nmodel.cuda()",
    "os.environ['CUDA_VISIBLE_DEVICES'] = '0'\nmodel.cuda()", "import torch_npu\nmodel.cuda()", "device = 'cuda'\nmodel.to(device)",
    "p.add_argument('--device', default='cuda')\nmodel.to(args.device)", "p.add_argument('--backend', default='nccl')\ndist.init_process_group(args.backend)",
    "torch.cuda.set_device(local_rank)", "with context():\n    model.cuda()",
]


@pytest.mark.parametrize("text", FATAL)
def test_cuda_that_is_reached_whenever_the_script_runs_fails_where_there_is_no_gpu(look, text):
    found = [f for f in look(f"import torch\n{text}\n") if f.topic == "cuda"]
    assert [f.level for f in found] == ["fail"]
    said = '"nccl" if torch.cuda.is_available() else "gloo"' if "nccl" in text else 'device = "cuda" if torch.cuda.is_available() else "cpu"'
    assert said in found[0].hint and f"line {found[0].line}" in found[0].hint
    assert _told(look(f"import torch\n{text}\n", gpu=True), "cuda") == []


@pytest.mark.parametrize("text", MAYBE)
def test_cuda_that_may_not_be_reached_or_may_work_is_a_warning(look, text):
    assert {f.level for f in look(f"import torch\n{text}\n") if f.topic == "cuda"} == {"warn"}


@pytest.mark.parametrize("line", GUARDED)
def test_cuda_behind_a_question_is_fine_in_a_script_that_imports_torch(look, line):
    assert _told(look(f"import torch\n{line}\n"), "cuda") == []


def test_a_backend_for_gpus_has_its_own_hint(look):
    found = [f for f in look("import torch\nif ddp:\n    dist.init_process_group('nccl')\nmodel.cuda()\n") if f.topic == "cuda"]
    assert [(f.level, f.line) for f in found] == [("note", 3), ("fail", 4)]
    assert "gloo" in found[0].hint and "gloo" not in found[1].hint


def test_cuda_in_a_file_that_the_script_imports_is_a_warning(look, tmp_path):
    (tmp_path / "helper.py").write_text("import torch\nmodel.cuda()\n")
    assert _told(look("import torch\nimport helper\n"), "cuda") == [("warn", "helper.py", 2)]


def test_cuda_is_told_once_a_file_and_is_silent_when_the_command_says_cpu(look):
    text = "device = 'cuda'\nmodel.cuda()\nx.cuda()\nif ddp:\n    torch.cuda.set_device(1)\n"
    found = look(text)
    assert _told(found, "cuda") == [("warn", "train.py", 1), ("note", "train.py", 5)] and "lines 2, 3" in found[0].message
    for words in (("--device=cpu",), ("--device", "cpu"), ("--no-cuda",), ("device=cpu",)):
        assert _told(look(text, *words), "cuda") == []


@pytest.mark.parametrize("text, count", [
    ("x = input('name? ')", 1), ("def main():\n    if input() == 'y':\n        pass", 1), ("breakpoint()", 1),
    ("import pdb\npdb.set_trace()", 1), ("def forward(self, input):\n    return input(3)", 0), ("self.input(x)", 0), ("print('input()')", 0),
    ("input = layer\ninput(x)", 0), ("from getpass import getpass\ngetpass()", 1),
])
def test_questions(look, text, count):
    assert len(_told(look(text + "\n"), "question")) == count


@pytest.mark.parametrize("text, count", [
    ("import os\nos.popen('stty size', 'r').read().split()", 1), ("import subprocess\nsubprocess.check_output(['stty', 'size'])", 1),
    ("import os\nos.get_terminal_size()", 1), ("import shutil\nshutil.get_terminal_size()", 0),
    ("import os\ntry:\n    os.get_terminal_size()\nexcept OSError:\n    pass", 0), ("from os import get_terminal_size as g\ng()", 1),
])
def test_terminals(look, text, count):
    assert len(_told(look(text + "\n"), "terminal")) == count


def test_wandb_without_a_key(look, tmp_path):
    text = "import wandb\nwandb.init(project='x')\n"
    for n, (env, count) in enumerate([({}, 1), ({"WANDB_MODE": "offline"}, 0), ({"WANDB_API_KEY": "k"}, 0), ({"WANDB_DISABLED": "true"}, 0)]):
        assert len(_told(look(text, **env), "wandb")) == count, n
    assert _told(look("import wandb\nwandb.init(mode='disabled')\n"), "wandb") == []
    assert _told(look("import wandb\nif log:\n    wandb.init()\n"), "wandb") == [("note", "train.py", 3)]
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.netrc").write_text("machine api.wandb.ai login user password k\n")
    (tmp_path / "home/.netrc").chmod(0o600)
    assert _told(look(text), "wandb") == []


def _downloads(findings):
    return [(f.level, f.line) for f in findings if f.topic == "download"]


def test_data_sets_are_looked_for_where_the_library_looks(look, tmp_path):
    text = """\
        import argparse
        from torchvision import datasets
        parser = argparse.ArgumentParser()
        parser.add_argument("--data-dir", default="data")
        args = parser.parse_args()
        train = datasets.MNIST(args.data_dir, train=True, download=True)
        """
    assert _downloads(look(text)) == [("warn", 6)]
    assert _downloads(look(text, files=["data/MNIST/raw/train-images-idx3-ubyte"])) == []
    assert _downloads(look(text, "--data-dir", "elsewhere")) == [("warn", 6)]
    assert _downloads(look(text, "--data-dir=elsewhere", files=["elsewhere/MNIST/raw/train-images-idx3-ubyte"])) == []
    assert _downloads(look("from torchvision import datasets\ndatasets.MNIST('nowhere', download=False)\n")) == []
    assert _downloads(look("import torchvision\ntorchvision.datasets.CIFAR10(root=somewhere(), download=True)\n")) == [("note", 2)]


def test_weights_and_hubs(look, tmp_path):
    text = "from transformers import AutoModel\nm = AutoModel.from_pretrained('bert-base-uncased')\n"
    found = look(text)
    assert _downloads(found) == [("warn", 2)] and "models--bert-base-uncased" in next(f for f in found if f.topic == "download").message
    (tmp_path / "home/.cache/huggingface/hub/models--bert-base-uncased").mkdir(parents=True)
    assert _downloads(look(text)) == []
    (tmp_path / "local-model").mkdir()
    assert _downloads(look("import transformers\ntransformers.AutoModel.from_pretrained('local-model')\n")) == []
    assert _downloads(look("class GPT: ...\nGPT.from_pretrained('gpt2')\n")) == []
    assert _downloads(look("from datasets import load_dataset\nload_dataset('csv', data_files='a.csv')\n")) == []
    assert _downloads(look("from datasets import load_dataset\nload_dataset('imdb')\n")) == [("warn", 2)]
    assert _downloads(look("from torchvision import models\nmodels.resnet18(weights='DEFAULT')\n")) == [("warn", 2)]
    assert _downloads(look("from torchvision import models\nmodels.resnet18(weights=None)\nmodels.resnet18(pretrained=False)\n")) == []
    (tmp_path / "home/.cache/torch/hub/checkpoints").mkdir(parents=True)
    (tmp_path / "home/.cache/torch/hub/checkpoints/resnet18-f37072fd.pth").write_text("")
    assert _downloads(look("from torchvision.models import resnet18\nresnet18(pretrained=True)\n")) == []


@pytest.mark.parametrize("line", ["urllib.request.urlretrieve('http://example.org/a', 'a')", "requests.get('http://example.org/a')",
                                  "torch.hub.load('pytorch/vision', 'resnet18')", "os.system('wget http://example.org/a.zip')",
                                  "subprocess.run('curl -O http://example.org/a', shell=True)"])
def test_other_downloads_are_notes(look, line):
    assert _downloads(look(f"import os, subprocess, urllib.request\n{line}\n")) == [("note", 2)]


def test_nothing_to_say_about_a_plain_script(look):
    assert look("import sys\nprint(sys.argv)\nfor epoch in range(3):\n    print(epoch)\n") == []


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment", "x = (" + "1 + " * 3000 + "1)\n", "\ufeffimport os\n", "'''" + "a" * 100_000 + "'''"])
def test_odd_files_do_not_disturb(look, text):
    look(text)


def test_files_that_are_no_text(tmp_path):
    for n, data in enumerate((b"\x00\x01\x02", b"# coding: nonsense\n", b"caf\xe9 = 1\n")):
        (tmp_path / f"{n}.py").write_bytes(data)
        source.family(tmp_path / f"{n}.py", [str(tmp_path)])
    assert source.load(tmp_path / "gone.py") is None


def test_submodules(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitmodules").write_text('[submodule "a"]\n\tpath = deps/a\n\turl = x\n[submodule "b"]\n\tpath = deps/b\n\turl = y\n')
    (tmp_path / "deps/a").mkdir(parents=True)
    (tmp_path / "deps/b").mkdir()
    (tmp_path / "deps/b/file").write_text("")
    (tmp_path / "sub").mkdir()
    found = list(script.submodules(tmp_path / "sub"))
    assert [(f.file, f.line) for f in found] == [(os.path.join("..", ".gitmodules"), 2)] and "deps/a" in found[0].message
    assert list(script.submodules(tmp_path / "deps/b")) != []


@pytest.mark.skipif(not SUBJECTS.is_dir(), reason="the published scripts are not here (../shared/subjects)")
@pytest.mark.parametrize("folder, name, words, expected", [
    ("pytorch-examples/mnist", "main.py", (), {("download", "warn", 120)}),
    ("nanogpt", "train.py", (), {("cuda", "warn", 72), ("cuda", "note", 84), ("cuda", "note", 89), ("wandb", "note", 247)}),
    ("nanogpt", "train.py", ("--device=cpu",), {("wandb", "note", 247)}),
    ("pytorch-examples/distributed/ddp-tutorial-series", "multigpu_torchrun.py", (), {("cuda", "warn", 14), ("cuda", "fail", 15)}),
])
def test_published_scripts(folder, name, words, expected):
    where = SUBJECTS / folder
    read = source.family(where / name, [str(where)])
    around = Surroundings(where, {"HOME": "/nonexistent"}, (name, *words), None, True)
    assert {(f.topic, f.level, f.line) for f in script.look(read, around)} == expected


def test_our_own_interpreter_is_asked_like_any_other(tmp_path):
    answer = python.ask(sys.executable, tmp_path, dict(os.environ), modules=["json", "no_such_module"])
    assert answer.missing == {"no_such_module"} and answer.version[:2] == sys.version_info[:2]


def test_a_process_per_gpu_where_there_is_none(look):
    found = next(each for each in look("mp.spawn(main, nprocs=torch.cuda.device_count())\n") if each.topic == "cuda")
    assert found.message == "The script starts one process per GPU. No GPU is visible, so the script would start no process and train nothing."
