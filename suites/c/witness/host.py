"""What every host program in Python has that watches its guests: it tells what it saw by the file GUEST_TELLS names, then `kept`, and ends with 37."""
import ctypes
import locale
import os
import signal


def tell(line):
    print(line, file=open(os.environ["GUEST_TELLS"], "a"))


def check(what, code):
    if code:
        tell(f"{what} answered {code}")


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def manners():
    numbers = [number for number in range(1, 65) if number not in (32, 33)]
    low = {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in range(200) if os.path.lexists(f"/proc/self/fd/{fd}")}
    low = {fd: target for fd, target in low.items() if "mock-device" not in target}
    return {
        "umask": umask(),
        "directory": os.getcwd(),
        "locale": locale.setlocale(locale.LC_ALL),
        "handlers": [str(signal.getsignal(number)) for number in numbers],
        "blocked": sorted(int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "environment": dict(os.environ),
        "raw environment": open("/proc/self/environ", "rb").read(),
        "threads": len(os.listdir("/proc/self/task")),
        "low descriptors": low,
    }


def have_habits():
    os.umask(0o027)
    os.chdir("/usr")
    locale.setlocale(locale.LC_ALL, "C.UTF-8")
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGRTMIN + 3])
    os.environ["MY_OWN"] = "value"


def compare(before, after):
    for name in before:
        if before[name] != after[name]:
            tell(f"{name}: {before[name]} before, {after[name]} after")


def keeps_errno(calls):
    """Names and what calls them."""
    for name, call in calls.items():
        ctypes.set_errno(4242)
        call()
        if ctypes.get_errno() != 4242:
            tell(f"{name} left errno {ctypes.get_errno()}")
