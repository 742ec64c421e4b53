"""What an error of TensorFlow says happened: one line of the many that it comes in."""
import re

_NOISE = re.compile(r"Graph execution error|Detected at node|<stack traces|Additional GRPC error|:\{|\s*\[\[|"
                    r"\s*File \"|\d+ root error|0 successful|\s{4,}|This could happen|\s*$")
_SERVER = re.compile(r"remote target /job:(ps|worker)/replica:0/task:(\d+)")


def reason(error, length: int = 300) -> str:
    """The first line of an OpError's message that is neither a stack nor a report of who passed it on."""
    message = str(getattr(error, "message", None) or error)
    lines = [line for line in message.splitlines() if not _NOISE.match(line)]
    line = lines[0] if lines else message.strip().splitlines()[0] if message.strip() else type(error).__name__
    return re.sub(r"\{\{.*?\}\}\s*", "", re.sub(r"^\s*(\(\d+\)\s*)?([A-Z_]+:\s+)?", "", line)).strip()[:length]


def servers_named(error) -> str:
    """The tasks that an error came through, such as "ps 1, worker 0", parameter servers first; may be empty."""
    message = str(getattr(error, "message", None) or error)
    return ", ".join(sorted({f"{role} {index}" for role, index in _SERVER.findall(message)}))
