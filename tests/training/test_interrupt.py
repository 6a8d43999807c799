import signal
import threading

from pscd.training.interrupt import deferred_interrupt


def test_a_signal_is_noted_and_the_handlers_come_back():
    before = signal.getsignal(signal.SIGINT)
    with deferred_interrupt() as interrupted:
        assert not interrupted()
        signal.raise_signal(signal.SIGINT)
        assert interrupted()
        assert signal.getsignal(signal.SIGINT) is before  # a second Ctrl-C acts at once
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_outside_the_main_thread_nothing_changes():
    seen = []

    def work():
        with deferred_interrupt() as interrupted:
            seen.append(interrupted())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]
