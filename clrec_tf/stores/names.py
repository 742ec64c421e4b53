"""Which local path stands for which address, so that messages and records name what the user gave."""
import re

_ADDRESSES: dict[str, str] = {}  # local path -> address, of this process


def note(path: str, address: str) -> None:
    """From now on `path`, and what lies in it, is shown as `address`."""
    _ADDRESSES[path] = address


def forget(path: str) -> None:
    """Ends what `note` began."""
    _ADDRESSES.pop(path, None)


def address_of(path: str) -> str:
    """What the user gave: an address, or the path itself."""
    return shown(path)


def local_of(address: str) -> str:
    """The local path that stands for an address of this process, or for a folder above it; else the address itself."""
    for path, known in sorted(_ADDRESSES.items(), key=lambda pair: len(pair[1]), reverse=True):
        if address == known or address.startswith(f"{known}/"):
            return path + address[len(known):]
    return address


def shown(text: str) -> str:
    """The text with addresses in place of the local paths that stand for them."""
    for path, address in sorted(_ADDRESSES.items(), key=lambda pair: len(pair[0]), reverse=True):  # threads change them
        if path in text:
            text = re.sub(re.escape(path) + r"(?![\w-])", lambda match, address=address: address, text)
    return text
