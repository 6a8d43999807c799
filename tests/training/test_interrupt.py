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


def test_what_is_not_enabled_changes_nothing():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with deferred_interrupt(enabled=False) as interrupted:
        assert {number: signal.getsignal(number) for number in before} == before
        assert not interrupted()


def test_the_handlers_come_back_after_an_error_and_both_signals_are_noted():
    before = signal.getsignal(signal.SIGTERM)
    noted = []
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            with deferred_interrupt() as interrupted:
                signal.raise_signal(number)
                noted.append(interrupted())
                raise RuntimeError
        except RuntimeError:
            assert signal.getsignal(signal.SIGTERM) is before
    assert noted == [True, True]
