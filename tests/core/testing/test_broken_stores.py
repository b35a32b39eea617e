"""A contract is worth what it refuses: each of these stores has one fault, and the kit finds it."""

import inspect
import itertools
import os
from contextlib import contextmanager

import pytest
from hypothesis import Phase, settings

from nanomem_core.testing import DurabilityContract, StorageContract
from tests.core.testing import broken_stores as broken
from tests.core.testing.log_storage import LogStorage

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the store syncs its folder, which Windows can't")

REFUSED = (AssertionError, pytest.fail.Exception)

STORAGE = StorageContract()
SHARED = [
    (broken.AcknowledgesBeforeWriting, STORAGE.test_two_handles_see_the_commits_of_each_other),
    (broken.AppliesWhatWasRefused, STORAGE.test_later_changes_of_a_commit_see_the_earlier_ones),
    (broken.ChangesNewlines, STORAGE.test_odd_texts_come_back_byte_for_byte),
    (broken.CountsDeletedRevisions, STORAGE.test_the_tip_of_a_chain_is_its_highest_stored_number),
    (broken.CountsHeadsPerHandle, STORAGE.test_two_handles_see_the_commits_of_each_other),
    (broken.CountsHeadsPerHandle, STORAGE.test_heads_count_the_commits_of_each_scope),
    (broken.ForgetsToUpdateColumns, STORAGE.test_columns_agree_with_the_records_after_each_commit),
    (broken.IgnoresCase, STORAGE.test_scopes_with_similar_names_share_nothing),
    (broken.KeepsWhatIsErased, STORAGE.test_erase_removes_one_scope_and_no_other),
    (broken.LetsOthersRead, STORAGE.test_files_are_for_their_owner_only),
    (broken.LocksNothing, STORAGE.test_threads_lose_nothing),
    (broken.LocksNothing, STORAGE.test_threads_number_one_chain_without_gaps),
    (broken.LosesUpdates, STORAGE.test_an_update_is_recomputed_when_somebody_wrote_meanwhile),
    (broken.LosesUpdates, STORAGE.test_a_head_can_be_demanded),
    (broken.MatchesScopesByPrefix, STORAGE.test_scopes_with_similar_names_share_nothing),
    (broken.NeverCompacts, STORAGE.test_compact_keeps_everything_but_what_was_deleted),
    (broken.NeverLooksAgain, STORAGE.test_two_handles_see_the_commits_of_each_other),
    (broken.RoundsTimes, STORAGE.test_times_of_all_centuries_come_back_exactly),
    (broken.ScansById, STORAGE.test_scan_is_in_the_order_of_first_writing),
    (broken.ScansById, STORAGE.test_random_operations_agree_with_a_dictionary),
    (broken.StaysOpen, STORAGE.test_a_closed_store_refuses_every_call),
    (broken.TakesAnyPlan, STORAGE.test_a_plan_for_another_scope_is_refused),
]

DURABILITY = DurabilityContract()
CRASH = DURABILITY.test_every_crash_leaves_all_old_or_all_new
ON_DISK = [
    (broken.AcknowledgesBeforeWriting, CRASH, {"loss": "none"}),
    (broken.AcknowledgesBeforeWriting, DURABILITY.test_a_killed_process_loses_nothing_acknowledged, {}),
    (broken.ForgetsTheChecksum, CRASH, {"loss": "sectors"}),
    (broken.HidesErrors, DURABILITY.test_a_failing_disk_loses_nothing_acknowledged, {"code": 28, "lasting": True}),
    (broken.KeepsTheTornTail, CRASH, {"loss": "torn"}),
    (
        broken.LeavesAnErrorOfTheSystem,
        DURABILITY.test_a_failing_disk_loses_nothing_acknowledged,
        {"code": 5, "lasting": False},
    ),
    (broken.NeverSyncs, CRASH, {"loss": "all"}),
    (broken.NeverSyncs, CRASH, {"loss": "sectors"}),
    (broken.NeverSyncs, CRASH, {"loss": "cut"}),
    (broken.NeverSyncs, CRASH, {"loss": "zeros"}),
    (broken.NeverSyncsTheFolder, CRASH, {"loss": "all"}),
    (broken.RenamesBeforeSyncing, CRASH, {"loss": "zeros"}),
    (broken.RewritesInPlace, CRASH, {"loss": "none"}),
    (broken.SyncsBeforeWriting, CRASH, {"loss": "all"}),
    (broken.WritesACommitInParts, CRASH, {"loss": "none"}),
    (broken.WritesOnlyOnce, DURABILITY.test_writes_that_the_system_cuts_short_are_continued, {}),
]


@contextmanager
def without_shrinking():
    """Finding the smallest example of a fault takes long, and here nobody reads it."""
    before = settings.default
    settings.register_profile("found", before, phases=[Phase.generate])
    settings.load_profile("found")
    yield
    settings.register_profile("before", before)
    settings.load_profile("before")


def names(value):
    return getattr(value, "__name__", None)


@pytest.mark.parametrize(("store", "test"), SHARED, ids=names)
def test_the_storage_contract_refuses_a_store_that(store, test, tmp_path):
    given = {"opened": lambda: store(tmp_path), "make_storage": lambda: store(tmp_path), "tmp_path": tmp_path}
    wanted = inspect.signature(test).parameters
    given["storage"] = store(tmp_path)
    with without_shrinking(), pytest.raises(REFUSED):
        test(**{name: given[name] for name in wanted})


@pytest.mark.parametrize(("store", "test", "arguments"), ON_DISK, ids=names)
def test_the_durability_contract_refuses_a_store_that(store, test, arguments, tmp_path):
    folders = (tmp_path / str(number) for number in itertools.count())
    with pytest.raises((AssertionError, OSError, ValueError)):
        test(store, folders, **arguments)


def test_the_kit_explains_what_led_to_the_state_it_refuses(tmp_path):
    folders = (tmp_path / str(number) for number in itertools.count())
    with pytest.raises(AssertionError) as caught:
        CRASH(broken.NeverSyncs, folders, "all")
    assert str(caught.value).startswith("expected ann at ")
    assert "operations that lost 'all'" in "".join(caught.value.__notes__)


def test_a_lambda_is_refused_with_advice_where_processes_need_it(tmp_path):
    with pytest.raises(pytest.fail.Exception, match=r"functools\.partial"):
        STORAGE.test_processes_lose_nothing(lambda: LogStorage(tmp_path), None)
