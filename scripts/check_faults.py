#!/usr/bin/env python3
"""Breaks runs of two processes in ways that clusters know, and sees that all ends in time, with the right exit code and a
word on which rank and step, and that the same command then ends in the bytes of an undisturbed run.

  check_faults.py PROGRAM [--kinds rank,mpirun,panic,stop,line,disk,config] [--times 20] [--timeout 3] [--seed 1]
                  [--steps 300]

PROGRAM is a build with --features mpi. Needs Open MPI; root and iproute2 for `line` (two network namespaces, by vm/train-cluster.sh),
root for `disk` (a small tmpfs). `panic` is for a build that panics in the step and rank that MLMTRAIN_PLANTED_PANIC=RANK:STEP names,
which no released one does: two lines in `Stepper::run`. From the checkout, on the text of the quickstart.
"""
import argparse, contextlib, hashlib, os, random, re, shutil, signal, subprocess, sys, tempfile, time

CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "configs", "quickstart.yaml")
SETS = [
    "run.threads=1", "run.tensorboard=false", "model.initial_embeddings=random", "evaluation.loss_band=null",
    "model.roberta.num_hidden_layers=1", "model.roberta.hidden_size=64", "model.roberta.num_attention_heads=1",
    "model.roberta.intermediate_size=128", "model.roberta.hidden_dropout_prob=0.1", "training.max_train_time=null",
    "training.per_device_train_batch_size=4", "training.gradient_accumulation_steps=4",
    "training.logging_steps=1", "training.eval_steps=0", "training.save_steps=10", "training.save_total_limit=1",
]
CLUSTER = os.path.join(os.path.dirname(CONFIG), "..", "scripts", "vm", "train-cluster.sh")
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
# Exit codes that are right: of mpirun, where it is not killed itself.
CODES = {"rank": [137], "mpirun": [-9], "panic": [101], "stop": [75], "line": None, "disk": [74], "config": [2]}
# What must be said.
WORDS = {
    "rank": r"rank \d.*(exited on signal 9|in step \d+)", "mpirun": None, "panic": r"rank \d.*|planted",
    "stop": r"rank \d of 2 has waited \S+ s for the others in step \d+", "line": None,
    "disk": r"rank 0: error: .*no room|checkpoint of step \d+ was not saved", "config": r"configuration of rank 1 differs from that of rank 0",
}


class Run:
    """The processes of one run in a folder."""

    def __init__(self, o, folder, data, other=(), line=None, env=None):
        self.folder = folder
        base = [*SETS, f"run.output_dir={folder}", f"data.prepared_dir={data}", f"distributed.timeout={o.timeout}s",
                f"training.max_steps={o.steps}"]
        words = lambda keys: [w for key in keys for w in ("--set", key)]
        one = [o.program, "pretrain", "--config", CONFIG, *words(base)]
        if line:
            each = [CLUSTER, "--config", CONFIG, "--program", o.program, "--launch", line, "--restarts", "0", "--", *words(base)]
        elif other:
            each = [*MPIRUN, "-np", "1", *one, ":", "-np", "1", *one, *words(other)]
        else:
            each = [*MPIRUN, "-np", "2", *one]
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(each, stdout=self.log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                        env={**os.environ, **(env or {})}, start_new_session=True)

    def step(self):
        try:
            with open(os.path.join(self.folder, "metrics.jsonl")) as file:
                return sum("train/loss" in line for line in file)
        except FileNotFoundError:
            return 0

    def reach(self, step):
        while self.step() < step:
            if self.process.poll() is not None:
                sys.exit(f"it ended before step {step}:\n{self.text()}")
            time.sleep(0.002)

    def ranks(self):
        """Process ids of the ranks, by their number."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    arguments = file.read().split(b"\0")
                with open(f"/proc/{pid}/environ", "rb") as file:
                    rank = re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)", file.read())
            except OSError:
                continue
            if rank and arguments[1:2] == [b"pretrain"] and f"run.output_dir={self.folder}".encode() in arguments:
                found[int(rank[1])] = int(pid)
        return found

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def end(self, patience=60):
        """Exit code; all ranks are gone, too, or the patience is over."""
        until = time.monotonic() + patience
        while (code := self.process.poll()) is None:
            if time.monotonic() > until:
                ranks = self.ranks()
                os.killpg(self.process.pid, signal.SIGKILL)
                sys.exit(f"the launcher does not end; ranks {ranks} are there:\n{self.text()}")
            time.sleep(0.01)
        while self.ranks():
            if time.monotonic() > until:
                sys.exit(f"ranks {self.ranks()} are still there:\n{self.text()}")
            time.sleep(0.01)
        return code


def bytes_of(folder, steps):
    found = hashlib.sha256()
    for name in ("final/model.safetensors", f"checkpoint-{steps}/trainer/optimizer.safetensors"):
        with open(os.path.join(folder, name), "rb") as file:
            found.update(file.read())
    return found.hexdigest()


def namespaces(work):
    """Two namespaces with a line between them; the script that starts two processes over it."""
    def ip(*words):
        subprocess.run(["ip", *words], check=True)

    for name in ("mlmf0", "mlmf1"):
        # A launcher's daemon outlives its line.
        pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
        subprocess.run(["kill", "-9", *pids], stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)
        ip("netns", "add", name)
    ip("link", "add", "vethf0", "netns", "mlmf0", "type", "veth", "peer", "name", "vethf1", "netns", "mlmf1")
    for i in (0, 1):
        ip("-n", f"mlmf{i}", "addr", "add", f"10.78.0.{i + 1}/24", "dev", f"vethf{i}")
        ip("-n", f"mlmf{i}", "link", "set", f"vethf{i}", "up")
        ip("-n", f"mlmf{i}", "link", "set", "lo", "up")
    agent = os.path.join(work, "agent")
    with open(agent, "w") as file:
        file.write('#!/bin/bash\nshift\nexec ip netns exec mlmf1 unshare --uts bash -c "hostname mlmf1; exec bash -c \\"\\$1\\"" agent "$*"\n')
    os.chmod(agent, 0o755)
    line = os.path.join(work, "line")
    mca = {"plm_rsh_agent": agent, "btl": "tcp,self", "pml": "ob1", "btl_tcp_if_include": "10.78.0.0/24", "oob_tcp_if_include": "10.78.0.0/24"}
    words = [*MPIRUN, "-np", "2", "--host", "10.78.0.1:1,10.78.0.2:1", *(w for key, value in mca.items() for w in ("--mca", key, value))]
    with open(line, "w") as file:
        file.write("#!/bin/bash\nexec ip netns exec mlmf0 unshare --uts bash -c 'hostname mlmf0; exec \"$@\"' run " + " ".join(words) + ' "$@"\n')
    os.chmod(line, 0o755)
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--kinds", default="rank,mpirun,stop,line,disk,config")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--timeout", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=300, help="of a run: more than a quick processor does in a second")
    parser.add_argument("--verbose", action="store_true", help="print what the broken runs said")
    o = parser.parse_args()
    o.program = os.path.abspath(o.program)
    draw = random.Random(o.seed)
    with tempfile.TemporaryDirectory() as work:
        data = os.path.join(work, "data")
        whole = Run(o, os.path.join(work, "whole"), data)
        if whole.end() != 0:
            sys.exit(whole.text())
        wanted = bytes_of(whole.folder, o.steps)
        for kind in o.kinds.split(","):
            ends = [broken(o, kind, os.path.join(work, f"{kind}-{number}"), data, work, draw, wanted) for number in range(o.times)]
            codes = sorted({code for code, _ in ends}, key=str)
            print(f"{kind:8} {len(ends)} times: ended after {min(s for _, s in ends):.1f} to {max(s for _, s in ends):.1f} s, "
                  f"exit codes {codes}; went on to the same bytes" if kind != "config" else
                  f"{kind:8} {len(ends)} times: ended after at most {max(s for _, s in ends):.1f} s, exit codes {codes}", flush=True)


def broken(o, kind, folder, data, work, draw, wanted):
    """Breaks one run at a random step; exit code and seconds until all was over."""
    step, rank = draw.randint(3, o.steps // 2), draw.randint(0, 1)
    line = namespaces(work) if kind == "line" else None
    env, other = None, ()
    if kind == "panic":
        env = {"MLMTRAIN_PLANTED_PANIC": f"{rank}:{step}"}
    if kind == "config":
        other = ("training.learning_rate=1e-4",)
    if kind == "disk":
        os.makedirs(folder)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder], check=True)
    mounted = folder if kind == "disk" else None
    folder = os.path.join(folder, "run") if mounted else folder
    try:
        run = Run(o, folder, data, other=other, line=line, env=env)
        if kind not in ("panic", "config"):
            run.reach(step)
        begun = time.monotonic()
        ranks = run.ranks()
        if kind == "rank":
            os.kill(ranks[rank], signal.SIGKILL)
        elif kind == "stop":
            os.kill(ranks[rank], signal.SIGSTOP)
        elif kind == "mpirun":
            run.process.kill()
        elif kind == "line":
            subprocess.run(["ip", "-n", "mlmf0", "link", "set", "vethf0", "down"], check=True)
        elif kind == "disk":
            with open(os.path.join(mounted, "ballast"), "wb", buffering=0) as file, contextlib.suppress(OSError):
                while file.write(bytes(1 << 12)):
                    pass
        if kind == "panic":
            run.reach(step - 1)
            begun = time.monotonic()
        code = run.end()
        seconds, text = time.monotonic() - begun, run.text()
        if o.verbose:
            print(f"--- {kind}, rank {rank}, step {step}: code {code} after {seconds:.1f} s\n{text}", flush=True)
        if code == 0 or CODES[kind] and code not in CODES[kind]:
            sys.exit(f"{kind}, rank {rank}, step {step}: exit code {code}\n{text}")
        if WORDS[kind] and not re.search(WORDS[kind], text):
            sys.exit(f"{kind}, rank {rank}, step {step}: nothing said of it\n{text}")
        # A save may be what comes next, and the timeout begins with it.
        if kind not in ("disk", "config") and seconds > 10 + o.timeout:
            sys.exit(f"{kind}, rank {rank}, step {step}: took {seconds:.1f} s\n{text}")
        if kind != "config":
            if mounted:
                os.remove(os.path.join(mounted, "ballast"))
            again = Run(o, folder, data)
            if again.end() != 0:
                sys.exit(f"{kind}, rank {rank}, step {step}: does not go on\n{again.text()}")
            if bytes_of(folder, o.steps) != wanted:
                sys.exit(f"{kind}, rank {rank}, step {step}: other bytes")
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", mounted], check=True)
    shutil.rmtree(mounted or folder, ignore_errors=True)
    return code, seconds


if __name__ == "__main__":
    main()
