"""Asking and chatting: answers of a model from what is remembered, and what to keep of a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from ..errors import ConfigError, GeneratorError, InputError
from ..hints import NAME_A_GENERATOR
from ..interfaces import ChatMessage, Generator
from ..pipeline.context import CountTokens, estimate_tokens
from ..pipeline.search import Mode
from ..records import clean_text
from ..results import SearchResults
from ..times import TimeLike
from .ingesting import Ingesting

if TYPE_CHECKING:
    # Imported by the methods that need them: a program that only stores and finds waits for none of it.
    from ..pipeline.answer import Answer, AnswerStream, Question
    from ..pipeline.gate import Judgement

__all__ = ["Answering", "AskOptions", "ChatTurn"]

_SOURCE = "chat_session"
"""`Record.source` of what `Answering.remember` stores."""


class AskOptions(TypedDict, total=False):
    """What `Memory.ask` takes beside the question and the model.

    Attributes:
        top_k: how many facts the model is shown at most, 10 by default.
        cite: have the model cite the facts by number; True by default.
        multihop: as in `Memory.search`; the model writes the questions of the second search, which is one more call.
        conversation: what was said before, the oldest first. If it is given, even empty, the model answers as a partner
            in it, who may know more than the facts.
        max_tokens: room for the facts in the prompt, 2000 by default, and as much again for `conversation`. Facts that
            don't fit are left out, the last first.
        count_tokens: counts the tokens of a text as the model will; by default an estimate from its characters.
        filter, min_score, mode, neighbours, entity, as_of, known_at, kind, user, agent: as in `Memory.search`.
    """

    top_k: int
    filter: Mapping[str, Any] | None
    cite: bool
    multihop: bool
    conversation: Sequence[ChatMessage] | None
    max_tokens: int
    count_tokens: CountTokens
    min_score: float
    mode: Mode | None
    neighbours: bool | None
    entity: str | None
    as_of: TimeLike | None
    known_at: TimeLike | None
    kind: str | None
    user: str | None
    agent: str | None


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """What became of a message.

    Attributes:
        id: of the record that holds it, None if it was not stored.
        reason: why it was stored, or not.
        context: the facts that were found for it, before it was stored.
        reply: what the model answered, None where there is no model.
    """

    message: str
    id: str | None
    reason: str
    context: SearchResults
    reply: Answer | None = None

    @property
    def stored(self) -> bool:
        """True if the message was stored."""
        return self.id is not None

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON types."""
        return {
            "message": self.message,
            "stored": self.stored,
            "id": self.id,
            "reason": self.reason,
            "context": list(self.context),
            "reply": None if self.reply is None else asdict(self.reply),
        }


class Answering(Ingesting):
    """The part of `Memory` that lets a model answer, and decides what of a conversation to keep."""

    def ask(self, question: str, generator: Generator | None = None, **options: Unpack[AskOptions]) -> Answer:
        """The answer of a model to `question` from the facts that `search` finds, its citations checked.

        If nothing is found the answer says so, and no model is asked; ``retrieval["other_kinds"]`` tells what other
        kinds of records there are, such as episodes. If the model finds the prompt too long, it is
        asked again with half of the facts, down to one.

        Args:
            generator: the model; by default the one that the memory has.
            options: see `AskOptions`.

        Raises:
            ConfigError: there is no model.
            GeneratorError: the model failed; the subclass tells how (`ContextLengthError`, `UnreachableError` …).
            InputError: an argument has the wrong form, or there is no room for a single fact.
        """
        return self._stream(question, generator, options, whole=True).answer

    def ask_stream(
        self, question: str, generator: Generator | None = None, **options: Unpack[AskOptions]
    ) -> AnswerStream:
        """Like `ask`, piece by piece: iterate over the stream, then read its `answer`.

        The search is done when this returns. The model is asked when the first piece is taken, and failures of it are
        raised there.
        """
        return self._stream(question, generator, options, whole=False)

    def _stream(self, text: str, generator: Generator | None, options: AskOptions, *, whole: bool) -> AnswerStream:
        self._check_open()
        model = self.generator if generator is None else generator
        if model is None:
            raise ConfigError(
                f"there is no model to ask: give one (`generator=`, --generator), or {NAME_A_GENERATOR}",
                key="generator",
            )
        from ..pipeline.answer import AnswerStream
        from ..pipeline.usage import Usage

        usage = Usage()
        question = self._question("question", text, usage.meter(model, "multihop"), **options)
        return AnswerStream(question, usage.meter(model, "answer"), usage, whole=whole)

    def _question(
        self,
        name: str,
        text: str,
        generator: Generator | None,
        *,
        top_k: int = 10,
        filter: Mapping[str, Any] | None = None,
        cite: bool = True,
        multihop: bool = False,
        conversation: Sequence[ChatMessage] | None = None,
        max_tokens: int = 2000,
        count_tokens: CountTokens = estimate_tokens,
        min_score: float = 0.0,
        mode: Mode | None = None,
        neighbours: bool | None = None,
        **where: Any,
    ) -> Question:
        """`text`, the argument `name`, with what is remembered of it."""
        from ..pipeline.answer import make_question

        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{name}: expected a text; found {text!r:.80}")
        text = clean_text(text)
        frame = self._frame(filter=filter, **where)
        hits = self._hops(
            frame,
            text,
            multihop=multihop,
            generator=generator,
            top_k=top_k,
            neighbours=neighbours,
            min_score=min_score,
            mode=mode,
        )
        return make_question(
            text, frame, hits, max_tokens=max_tokens, count=count_tokens, cite=cite, conversation=conversation
        )

    def chat(
        self,
        message: str,
        generator: Generator | None = None,
        *,
        store: bool | None = None,
        gate: Generator | None = None,
        reply: bool = True,
        **options: Unpack[AskOptions],
    ) -> ChatTurn:
        """Take a message of a conversation: look up what is known of it, store it if it is worth that, and answer.

        Without a model there is no reply; the rest is the same. The message is durable before the model is asked: if
        that fails, a note on the error names the record, and ``store=False`` asks again without storing twice.

        Args:
            generator, options: as in `ask`.
            store, gate: as in `remember`.
            reply: False for no answer, although there is a model.

        Raises:
            GeneratorError: the model failed.
        """
        turn, stream = self._chat(message, generator, store, gate, reply, options, whole=True)
        if stream is None:
            return turn
        try:
            return replace(turn, reply=stream.answer)
        except GeneratorError as error:
            if turn.stored:
                error.add_note(f"The message was stored before, as {turn.id!r}; pass store=False to ask again.")
            raise

    def chat_stream(
        self,
        message: str,
        generator: Generator | None = None,
        *,
        store: bool | None = None,
        gate: Generator | None = None,
        reply: bool = True,
        **options: Unpack[AskOptions],
    ) -> tuple[ChatTurn, AnswerStream | None]:
        """Like `chat`, with the reply piece by piece: what became of the message, and the stream of the reply, None if
        there is none. The message is looked up and stored when this returns; the stream is that of `ask_stream`.
        """
        return self._chat(message, generator, store, gate, reply, options, whole=False)

    def _chat(
        self,
        message: str,
        generator: Generator | None,
        store: bool | None,
        gate: Generator | None,
        reply: bool,
        options: AskOptions,
        *,
        whole: bool,
    ) -> tuple[ChatTurn, AnswerStream | None]:
        from ..pipeline.answer import AnswerStream
        from ..pipeline.usage import Usage

        before = options.get("conversation") or ()
        model = None if not reply else self.generator if generator is None else generator
        usage = Usage()
        hops = None if model is None else usage.meter(model, "multihop")
        asked: AskOptions = {**options, "conversation": before}
        question = self._question("message", message, hops, **asked)
        where = {"user": options.get("user"), "agent": options.get("agent")}
        id, reason = self.remember(message, context=before, store=store, gate=gate, **where)
        turn = ChatTurn(message, id, reason, question.hits)
        if model is None:
            return turn, None
        return turn, AnswerStream(question, usage.meter(model, "answer"), usage, whole=whole)

    def remember(
        self,
        text: str,
        *,
        context: Sequence[ChatMessage] = (),
        store: bool | None = None,
        gate: Generator | None = None,
        user: str | None = None,
        agent: str | None = None,
    ) -> tuple[str | None, str]:
        """Store what was said in a conversation, if it is worth that; returns its id, None if it is not, and why.

        Args:
            context: what was said before, the oldest first.
            store: True or False to decide, None to let `inspect_memory` decide.
            gate: as `generator` there.
        """
        from ..pipeline.gate import Judgement

        if store is None:
            verdict = self.inspect_memory(text, context=context, generator=gate, user=user, agent=agent)
        else:
            verdict = Judgement(store, "as asked")
        if not verdict.should_store:
            return None, verdict.reason
        return self.add(text, source=_SOURCE, user=user, agent=agent) or None, verdict.reason

    def should_store(self, text: str, **options: Any) -> bool:
        """True if `text` is worth remembering; the options are those of `inspect_memory`, which also says why."""
        return self.inspect_memory(text, **options).should_store

    def inspect_memory(
        self,
        text: str,
        *,
        context: Sequence[ChatMessage] = (),
        generator: Generator | None = None,
        user: str | None = None,
        agent: str | None = None,
    ) -> Judgement:
        """Whether `text`, said after the turns of `context`, is worth remembering, why, and who says so.

        Plugins are asked first (the hook ``nanomem_should_store``), then `generator`, if there is one. What nobody can
        judge is.
        """
        from ..pipeline.gate import judge

        return judge(self.plugins, self._scope(user, agent), clean_text(text), context, generator)
