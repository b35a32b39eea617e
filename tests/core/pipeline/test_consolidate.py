import pytest

from nanomem_core.changes import Put
from nanomem_core.errors import NotFoundError, ReplyError
from nanomem_core.pipeline.consolidate import Statement, consolidate, undo_changes
from nanomem_core.testing import ScriptedGenerator
from nanomem_core.times import parse_time

from .facts import NOW, KnownList, episode, fact, verdicts

AT = parse_time("2026-03-01T10:00:00Z")


def stated(text, entity=None, at=AT, dated=False):
    return Statement(text, entity, at, dated)


def judged(statements, known, *answers, **options):
    """The records that are written by their ids or, where they are new, by their texts; the report; the generator."""
    generator = ScriptedGenerator(answers)
    changes, report = consolidate(statements, known, generator, episode("x", "y", "z"), NOW, **options)
    assert all(isinstance(change, Put) for change in changes)
    written = {(change.record.text if change.expect == 0 else change.record.id): change.record for change in changes}
    assert all(
        change.expect == (1 if name == change.record.id else 0) for name, change in zip(written, changes, strict=True)
    )
    return written, report, generator


class TestDuplicates:
    @pytest.mark.parametrize("text", ["Likes green tea", " likes  GREEN tea. ", "“Likes green tea!”"])
    def test_the_same_words_need_no_model(self, text):
        known = KnownList(fact("f1", "Likes green tea", derived_from=["e0"]))
        written, report, generator = judged([stated(text)], known)
        assert generator.calls == []
        assert written["f1"].metadata == {"derived_from": ["e0", "e1"]}
        assert report["duplicates"] == ["f1"]
        assert report["facts"] == []

    def test_other_words_are_judged(self):
        known = KnownList(fact("f1", "Likes green tea", derived_from=["e0"]))
        written, report, _ = judged([stated("Enjoys green tea")], known, verdicts((1, "duplicate", 1)))
        assert list(written) == ["f1"]
        assert report["duplicates"] == ["f1"]

    def test_eight_rounds_leave_one_fact_with_eight_sources(self):
        record = fact("f1", "Likes tea", derived_from=["e0"])
        for number in range(1, 8):
            generator = ScriptedGenerator()
            told = episode("x", id=f"e{number}")
            changes, _ = consolidate([stated("likes tea")], KnownList(record), generator, told, NOW)
            (change,) = changes
            record = change.record
        assert record.metadata["derived_from"] == [f"e{number}" for number in range(8)]

    def test_an_episode_counts_once_as_a_source(self):
        known = KnownList(fact("f1", "Likes tea", derived_from=["e1"]))
        written, report, _ = judged([stated("Likes tea"), stated("likes tea!")], known)
        assert written == {}
        assert report["duplicates"] == ["f1"]

    def test_what_an_application_told_itself_keeps_its_sources(self):
        # Else it would be deleted or purged with the episode that merely repeats it.
        written, report, _ = judged([stated("Likes tea")], KnownList(fact("f1", "Likes tea")))
        assert written == {}
        assert report["duplicates"] == ["f1"]

    def test_what_is_stated_twice_in_one_answer_is_one_fact(self):
        written, _, _ = judged([stated("Likes tea"), stated("Likes Rome"), stated("likes tea.")], KnownList())
        assert list(written) == ["Likes tea", "Likes Rome"]

    def test_a_fact_under_another_attribute_is_no_duplicate_by_verdict(self):
        known = KnownList(fact("f1", "Head of compliance", "dana_job", derived_from=["e0"]))
        written, report, _ = judged([stated("Runs the repository", "dana_duty")], known, verdicts((1, "duplicate", 1)))
        assert list(written) == ["Runs the repository"]
        assert [refused["verdict"] for refused in report["refused"]] == ["duplicate"]


class TestSuperseding:
    def test_a_newer_value_of_the_same_attribute_becomes_a_revision(self):
        known = KnownList(fact("f1", "Works at Alder Foods", "employer", derived_from=["e0"]))
        statement = stated("Works at Birch Labs", "employer")
        written, report, generator = judged([statement], known, verdicts((1, "supersedes", 1)))
        new = written["Works at Birch Labs"]
        assert list(written) == ["Works at Birch Labs"], "the old value is not written"
        assert (new.chain, new.declared, new.revision) == ("employer", False, 0)
        assert new.metadata["supersedes"] == "f1"
        assert new.metadata["cause"] == {"verdict": "supersedes", "episode": "e1", "reason": "so it was said"}
        assert report["superseded"] == [{"fact": "f1", "by": new.id}]
        prompt = generator.calls[0].messages[-1]["content"]
        assert '<fact number="1" attribute="employer" since="2026-01-01">Works at Alder Foods</fact>' in prompt
        assert '<statement number="1" attribute="employer" compare="1">Works at Birch Labs</statement>' in prompt
        assert "f1" not in prompt, "a model sees numbers, no ids"

    def test_another_name_for_a_known_attribute_is_that_attribute(self):
        known = KnownList(fact("f1", "Works at Alder Foods", "employer"), far=["f1"])
        written, _, _ = judged(
            [stated("Works at Birch Labs", "job")],
            known,
            verdicts((1, "supersedes", 1)),
            same=lambda a, b: {a, b} == {"job", "employer"},
        )
        assert written["Works at Birch Labs"].entity == "employer"

    @pytest.mark.parametrize(
        "old",
        [
            fact("f1", "Head of compliance", "dana_job"),
            fact("f1", "Head of compliance"),
            fact("f1", "Head of compliance", "duty", user_id="bob"),
        ],
    )
    @pytest.mark.parametrize("verdict", ["supersedes", "contradicts"])
    def test_a_fact_under_another_attribute_or_subject_is_not_touched(self, old, verdict):
        written, report, _ = judged([stated("Asked for an audit", "duty")], KnownList(old), verdicts((1, verdict, 1)))
        (new,) = written.values()
        assert new.text == "Asked for an audit"
        assert "supersedes" not in new.metadata
        assert "contradicts" not in new.metadata
        assert report["refused"] == [{"verdict": verdict, "fact": "f1", "by": new.id}]
        assert report["superseded"] == report["contradicted"] == []

    def test_a_fact_is_retired_once(self):
        known = KnownList(fact("f1", "Works at Alder", "employer"))
        statements = [stated("Works at Birch", "employer"), stated("Works at Cedar", "employer")]
        written, report, _ = judged(statements, known, verdicts((1, "supersedes", 1), (2, "supersedes", 1)))
        assert written["Works at Birch"].entity == "employer"
        assert written["Works at Cedar"].entity is None
        assert len(report["superseded"]) == len(report["refused"]) == 1

    def test_within_one_conversation_the_later_word_holds(self):
        # The old value was told while the conversation went on, after its beginning.
        known = KnownList(fact("f1", "Works at Alder", "employer", at="2026-03-01T10:01:00Z"))
        written, _, _ = judged([stated("Works at Birch", "employer")], known, verdicts((1, "supersedes", 1)))
        assert written["Works at Birch"].valid_from == known.facts[0].valid_from

    @pytest.mark.parametrize("dated", [True, False])
    def test_a_former_value_takes_its_place_in_the_past(self, dated):
        known = KnownList(fact("f1", "Works at Alder", "employer", at="2026-03-05"))
        statement = stated("Worked at Birch", "employer", at=parse_time("2020-01-01"), dated=dated)
        written, report, _ = judged([statement], known, verdicts((1, "supersedes", 1)))
        former = written["Worked at Birch"]
        assert (former.entity, former.valid_from) == ("employer", parse_time("2020-01-01"))
        assert "supersedes" not in former.metadata
        assert report["superseded"] == []


class TestContradictions:
    def test_both_stay_and_name_one_another(self):
        known = KnownList(fact("f1", "Born in Oslo", "birthplace", derived_from=["e0"]))
        written, report, _ = judged([stated("Born in Bergen", "birthplace")], known, verdicts((1, "contradicts", 1)))
        old, new = written["f1"], written["Born in Bergen"]
        assert new.entity is None, "it is no later value"
        assert new.metadata["contradicts"] == ["f1"]
        assert old.metadata == {"derived_from": ["e0"], "contradicts": [new.id]}
        assert report["contradicted"] == [{"fact": "f1", "by": new.id}]


class TestNewFacts:
    def test_without_candidates_no_model_is_asked(self):
        written, _, generator = judged([stated("Likes tea"), stated("Works at Birch", "employer")], KnownList())
        assert generator.calls == []
        assert [record.entity for record in written.values()] == [None, "employer"]

    def test_a_new_fact_never_slips_into_the_chain_of_another_value(self):
        known = KnownList(fact("f1", "Likes tea", "favorite_drink"))
        written, _, _ = judged([stated("Likes coffee", "favorite_drink")], known, verdicts((1, "new", None)))
        assert written["Likes coffee"].entity is None

    def test_two_statements_about_one_attribute_do_not_retire_one_another(self):
        written, _, _ = judged([stated("Likes tea", "drink"), stated("Likes coffee", "drink")], KnownList())
        assert [record.entity for record in written.values()] == ["drink", None]

    def test_the_value_of_the_attribute_is_a_candidate_however_far_its_words_are(self):
        known = KnownList(fact("f1", "Alder Foods pays me", "employer"), far=["f1"])
        written, report, _ = judged([stated("First day at Birch!", "employer")], known, verdicts((1, "supersedes", 1)))
        assert written["First day at Birch!"].entity == "employer"
        assert len(report["superseded"]) == 1

    @pytest.mark.parametrize(
        "answer",
        [
            verdicts((1, "supersedes", 2)),
            verdicts((1, "supersedes", 0)),
            verdicts((1, "supersedes", True)),
            verdicts((1, "supersedes", None)),
            verdicts((1, "supersedes", "f1")),
            verdicts((2, "supersedes", 1)),
            verdicts((True, "supersedes", 1)),
            verdicts((1, "delete", 1)),
            verdicts((1, ["supersedes"], 1)),
            '{"verdicts": ["supersedes"]}',
            '{"verdicts": [{"statement": 1}]}',
        ],
    )
    def test_a_verdict_on_what_was_not_shown_means_nothing_and_is_counted(self, answer):
        known = KnownList(fact("f1", "Works at Alder", "employer"))
        written, report, _ = judged([stated("Works at Birch", "employer")], known, answer)
        (new,) = written.values()
        assert new.entity is None
        assert report["invalid_verdicts"] == 1

    def test_a_verdict_may_not_borrow_a_fact_that_another_statement_was_shown(self):
        class ByWord(KnownList):
            def related(self, text):
                return [fact for fact in self.facts if fact.text.split()[0] == text.split()[0]]

        known = ByWord(fact("f1", "Tea, every day", "drink"), fact("f2", "Oslo is home", "city"))
        statements = [stated("Tea twice a day", "drink"), stated("Oslo no more", "home")]
        answer = verdicts((1, "new", None), (2, "supersedes", 1))
        _, report, _ = judged(statements, known, answer)
        assert report["superseded"] == []
        assert report["invalid_verdicts"] == 1

    def test_the_first_verdict_on_a_statement_counts(self):
        known = KnownList(fact("f1", "Works at Alder", "employer"))
        answer = verdicts((1, "new", None), (1, "supersedes", 1))
        _, report, _ = judged([stated("Works at Birch", "employer")], known, answer)
        assert report["superseded"] == []

    def test_an_answer_that_can_not_be_read_changes_nothing(self):
        with pytest.raises(ReplyError):
            judged([stated("Likes coffee")], KnownList(fact("f1", "Likes tea")), "no", "no")


class TestUndo:
    def records(self, known, written):
        return list(
            {**{fact.id: fact for fact in known.facts}, **{record.id: record for record in written.values()}}.values()
        )

    def test_undoing_a_supersession_keeps_both_statements(self):
        known = KnownList(fact("f1", "Works at Alder", "employer"))
        written, _, _ = judged([stated("Works at Birch", "employer")], known, verdicts((1, "supersedes", 1)))
        new = written["Works at Birch"]
        for id in (new.id, "f1"):
            (change,) = undo_changes(id, self.records(known, written))
            assert change.expect == new.version
            undone = change.record
            assert (undone.id, undone.text, undone.entity) == (new.id, new.text, None)
            assert "supersedes" not in undone.metadata
            assert "cause" not in undone.metadata
            assert undone.metadata["undone"] == {
                "verdict": "supersedes",
                "episode": "e1",
                "reason": "so it was said",
                "fact": "f1",
            }

    def test_undoing_a_contradiction_takes_both_labels_away(self):
        known = KnownList(fact("f1", "Born in Oslo", "birthplace", contradicts=["f0"]))
        written, _, _ = judged([stated("Born in Bergen", "birthplace")], known, verdicts((1, "contradicts", 1)))
        changes = undo_changes(written["Born in Bergen"].id, self.records(known, written))
        after = {change.record.id: change.record for change in changes}
        assert after["f1"].metadata == {"contradicts": ["f0"]}
        assert "contradicts" not in after[written["Born in Bergen"].id].metadata

    def test_what_no_verdict_touched_can_not_be_undone(self):
        for id in ("f1", "unknown"):
            with pytest.raises(NotFoundError, match="no verdict"):
                undo_changes(id, [fact("f1", "Likes tea")])
