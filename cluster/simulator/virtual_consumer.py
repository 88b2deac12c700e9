"""A consumer in virtual time: the whole core, driven as the flavours drive it, on any clock and connections.

The calls of a consumer are generators of effects, and so is the program of a user: it calls the consumer with
`yield from`, and waits with `yield Sleep(ms)`. A callback that waits is a generator as well, as it is a
coroutine in asyncio. A call that is cancelled gets `Cancelled` where it waits, and may clean up.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import Any, Final, NamedTuple

from client.core.assembly import assemble
from client.core.effects import CallAnswer, NewsWait, Steps, UserCall
from client.core.env import ConnectionBackend, Environment
from client.core.errors import TimedOut
from client.core.settings import ConsumerSettings

GRACE_MS: Final = 1_000.0
"""The background side has this long after a call's time limit to end the call itself."""

FOREVER: Final = float("inf")

PASSES_MAX: Final = 200
"""Passes of a background side without time going on, before a test takes it for a busy loop."""

Then = Callable[[Any, BaseException | None], None]
"""Told what a call returned or raised."""
CallLater = Callable[..., Any]
"""Calls a function with arguments after so many ms."""


class Sleep(NamedTuple):
    """Wait, for ever if `ms` is infinite: what a user's program or callback does beside its calls."""

    ms: float


class Cancelled(BaseException):
    """Thrown into a call that its user cancels, as asyncio does it."""


class VirtualConsumer:
    """Both sides of one consumer. `call_later` is the time of its machine; it ends with `kill`."""

    def __init__(
        self, settings: ConsumerSettings, env: Environment, backend: ConnectionBackend, call_later: CallLater
    ) -> None:
        self.env = env
        self.call_later = call_later
        self.is_dead = False
        self.calls: list[RunningCall] = []
        """Calls that have not ended."""
        self.waiters: dict[RunningCall, None] = {}
        """Those that wait for news of the background side, in the order in which they began to."""
        self.assembly = assemble(settings, env, backend, self.wake)
        self.application = self.assembly.application
        self.passes = 0
        self._passed_ms = -FOREVER
        self._passes_now = 0
        self._is_woken = False
        self._wake_number = 0

    @property
    def events(self) -> Any:
        """Messages of the background side that the application side has not taken."""
        return self.assembly.background.background_events

    def run(self, steps: Steps[Any], then: Then = lambda result, error: None) -> RunningCall:
        """Begin a call, or a program of calls."""
        return RunningCall(self, steps, then)

    def kill(self) -> None:
        """End the process, without a word to anybody."""
        self.is_dead = True
        for call in self.calls:
            call.drop()

    # The background side.

    def wake(self) -> None:
        """Make a pass soon."""
        if not self._is_woken:
            self._is_woken = True
            self.call_later(0.0, self._pass, self._wake_number)

    def _pass(self, number: int) -> None:
        if number != self._wake_number or self.is_dead:
            return
        self._wake_number += 1
        self._is_woken = False
        self.passes += 1
        now_ms = self.env.now_ms()
        self._passes_now = self._passes_now + 1 if now_ms == self._passed_ms else 0
        self._passed_ms = now_ms
        assert self._passes_now < PASSES_MAX, "a busy loop"
        wait_ms = self.assembly.background.run_once(now_ms)
        if wait_ms <= 0:
            self.wake()
        elif wait_ms < FOREVER and not self._is_woken:
            self.call_later(wait_ms, self._pass, self._wake_number)
        if self.events:
            self.tell_waiters()

    def tell_waiters(self) -> None:
        """Wake the calls that wait for news."""
        for waiter in [*self.waiters]:
            waiter.resume_soon()


class RunningCall:
    """A call on its way: a stack of generators, the user's callbacks above the calls that run them."""

    def __init__(self, consumer: VirtualConsumer, steps: Steps[Any], then: Then) -> None:
        self.has_ended = False
        self._consumer = consumer
        self._stack: list[Generator[Any, Any, Any]] = [steps]
        self._then = then
        self._context = copy_context()
        self._turn = 0
        """The event that wakes the call, unless it comes too late."""
        consumer.calls.append(self)
        self._go()

    def cancel(self) -> None:
        """Raise `Cancelled` where the call waits."""
        if not self.has_ended:
            self._turn += 1
            self._go(thrown=Cancelled())

    def drop(self) -> None:
        """Go on no more, as nothing does in a process that has ended."""
        self._close_down_to(0)

    def _close_down_to(self, height: int) -> None:
        while len(self._stack) > height:
            self._context.run(self._stack.pop().close)

    def resume_soon(self) -> None:
        """Go on after a wait for news."""
        self._consumer.waiters.pop(self, None)
        self._consumer.call_later(0.0, self._resume, self._turn)

    def _resume(self, turn: int, sent: Any = None, thrown: BaseException | None = None) -> None:
        if turn == self._turn and not self._consumer.is_dead and not self.has_ended:
            self._turn += 1
            self._consumer.waiters.pop(self, None)
            self._go(sent, thrown)

    def _resume_after(self, ms: float, thrown: BaseException | None = None) -> None:
        if ms < FOREVER:
            self._consumer.call_later(max(ms, 0.0), self._resume, self._turn, None, thrown)

    def _go(self, sent: Any = None, thrown: BaseException | None = None) -> None:
        """Make steps until the call waits or ends."""
        while True:
            top = self._stack[-1]
            try:
                if thrown is None:
                    effect = self._context.run(top.send, sent)
                else:
                    effect = self._context.run(top.throw, thrown)
            except StopIteration as end:
                sent, thrown = end.value, None
                self._stack.pop()
            except BaseException as error:
                sent, thrown = None, error
                self._stack.pop()
            else:
                sent = thrown = None
                try:
                    if self._waits_for(effect):
                        return
                    if isinstance(effect, UserCall):
                        sent = self._call(effect)
                    elif isinstance(effect, CallAnswer):
                        sent = effect.future.result()
                except Exception as error:
                    thrown = error
                continue
            if not self._stack:
                self.has_ended = True
                self._consumer.calls.remove(self)
                self._then(sent, thrown)
                return

    def _waits_for(self, effect: Any) -> bool:
        """Whether the call goes on later; it is woken then."""
        now_ms = self._consumer.env.now_ms()
        match effect:
            case Sleep():
                self._resume_after(effect.ms)
            case NewsWait():
                is_over = effect.until_ms <= now_ms or (effect.future is not None and effect.future.done())
                if self._consumer.events or is_over:
                    return False
                self._consumer.waiters[self] = None
                self._resume_after(effect.until_ms - now_ms)
                self._resume_with(effect.future)
            case CallAnswer():
                if effect.future.done():
                    return False
                self._resume_with(effect.future, takes_result=True)
                self._resume_after(
                    max(effect.deadline_ms - now_ms, 0.0) + GRACE_MS, TimedOut("the call did not end")
                )
            case _:
                return False
        return True

    def _resume_with(self, future: Future[Any] | None, *, takes_result: bool = False) -> None:
        if future is None:
            return
        turn = self._turn

        def done(ended: Future[Any]) -> None:
            error = ended.exception() if takes_result else None
            result = ended.result() if takes_result and error is None else None
            self._consumer.call_later(0.0, self._resume, turn, result, error)

        future.add_done_callback(done)

    def _call(self, effect: UserCall) -> Any:
        """Call the user's function. One that waits goes on top of the stack until its time limit."""
        result = self._context.run(effect.function, *effect.arguments)
        if isinstance(result, Generator):
            self._stack.append(result)
            if effect.deadline_ms is not None:
                left_ms = max(effect.deadline_ms - self._consumer.env.now_ms(), 0.0)
                self._consumer.call_later(left_ms, partial(self._give_up, result))
            return None
        return result

    def _give_up(self, callback: Generator[Any, Any, Any]) -> None:
        """End a callback that did not end in time."""
        if self._consumer.is_dead or self.has_ended or callback not in self._stack:
            return
        self._close_down_to(self._stack.index(callback))
        self._turn += 1
        self._go(thrown=TimedOut("a callback did not end in time"))
