"""Each fault of the first design and the test that shows the right end: by name of its reproduction.

Scenarios of the whole fleet are in tests/swap/simulation, those of one guard (files, links, socket, memory) in
tests/guard, and what only real nodes show in tests/real.
"""

from __future__ import annotations

import re

import pytest

from tests.places import ROOT

TESTS = ROOT / "tests"
SIMULATION, GUARD = "swap/simulation/test_reproductions.py", "guard/test_reproductions.py"
SCENARIOS = {
    "p1_rollback_wait_acts_on_the_swap_it_read_before_the_lock": (
        SIMULATION, "p1_an_intent_that_was_planned_before_a_commit_is_refused"),
    "p2_flip_killed_after_the_switch": (
        SIMULATION, "p2_a_rollback_to_a_warm_release_survives_a_crash_at_any_point"),
    "p2b_flip_failing_docker_update": (
        SIMULATION, "p2b_a_guard_that_fails_while_it_arms_arms_afterwards"),
    "p3_blue_s_node_dies_while_a_good_green_on_another_node_bakes": (
        SIMULATION, "p3_the_old_release_s_node_dies_and_the_new_release_serves"),
    "p3c_stuck_after_blue_s_node_died_for_good": (
        SIMULATION, "p3c_after_a_lost_node_the_next_deploy_and_the_next_rollback_are_accepted"),
    "p4_one_lost_read_costs_a_good_green_in_place": (
        SIMULATION, "p4_one_lost_read_costs_nothing"),
    "p5_a_gateway_whose_haproxy_does_not_answer_counts_as_drained": (
        SIMULATION, "p5_a_drain_that_cannot_be_seen_does_not_end"),
    "p6_port_and_keys_change_before_anything_is_planned_or_locked": (
        SIMULATION, "p6_gateway_and_guards_change_only_while_no_service_does"),
    "p7_hold_does_not_stop_a_deploy_whose_lease_has_ended": (
        SIMULATION, "p7_a_hold_stops_what_has_not_switched"),
    "p7b_whole_deploy_goes_on_through_a_hold": (
        SIMULATION, "p7b_on_hold_nothing_begins_and_what_has_switched_ends"),
    "p8_green_dead_and_cli_dead_in_load_guard_waits_for_the_deadline": (
        SIMULATION, "p8_a_new_release_that_dies_is_replaced_by_the_old_one_without_any_client"),
    "p8b_an_unforeseen_exception_in_load_leaves_the_service_down": (
        SIMULATION, "p8b_a_new_release_that_never_works_is_replaced_by_the_old_one"),
    "p9_relief_ends_the_guard": (
        SIMULATION, "p9_a_new_release_that_leaves_too_little_memory_ends_and_the_old_one_returns"),
    "p10_newer_journal_is_a_bug_for_an_older_cli": (
        SIMULATION, "p10_a_journal_of_a_newer_version_stops_nothing_and_the_swap_ends_once_it_can_be_read"),
    "p11_an_unreadable_journal_keeps_the_guard_from_being_replaced": (
        SIMULATION, "p11_a_damaged_journal_is_replaced_by_the_newest_copy_and_the_swap_ends"),
    "p12_full_disk_the_guard_never_restores_blue": (
        SIMULATION, "p12_a_full_disk_refuses_the_new_release_and_never_the_way_back"),
    "p12b_full_disk_in_load_and_the_cli": (
        SIMULATION, "p12b_a_full_disk_in_load_stops_neither_a_good_release_nor_the_way_back"),
    "p13_a_broken_renewal_link_is_never_opened_again": (
        SIMULATION, "p13_a_link_that_was_cut_is_used_again"),
    "p14_keyerror_rename_and_start": (
        SIMULATION, "p14_a_node_that_is_gone_is_no_traceback"),
    "p14b_left_at_start_and_unreachable": (
        SIMULATION, "p14b_a_lost_node_of_the_new_release_ends_the_swap"),
    "p15_front_of_a_local_gateway": (
        SIMULATION, "p15_a_node_that_the_leader_does_not_reach_is_refused_by_name"),
    "p16_promote_with_a_picture_from_before_the_lock": (
        SIMULATION, "p16_of_two_operators_who_planned_on_the_same_state_one_is_refused"),
    "p17_stop_while_waiting": (
        SIMULATION, "p17_what_was_stopped_stays_stopped"),
    "p18_flip_to_a_warm_blue_that_the_guard_stops_meanwhile": (
        SIMULATION, "p18_a_rollback_planned_on_a_warm_release_that_has_been_retired_is_refused"),
    "p19_a_busy_engine_that_makes_steps_is_wrong_after_120_s": (
        SIMULATION, "p19_an_engine_that_computes_is_not_taken_for_a_dead_one"),
    "p20_journal_moved_away_then_deploy_records_blue_with_the_new_recipe": (
        SIMULATION, "p20_a_lost_journal_is_replaced_by_the_newest_copy"),
    "p23_the_advice_docker_stop_leaves_two_engines_armed": (
        SIMULATION, "p23_p32_an_engine_that_was_stopped_by_hand_is_not_started_beside_its_successor"),
    "p29_rollback_flip_trusts_health_only": (
        SIMULATION, "p29_a_warm_release_that_answers_nonsense_gets_no_request"),
    "p30_relief_kills_the_only_engine_with_the_traffic": (
        SIMULATION, "p30_memory_relief_ends_the_new_release_of_two_and_never_what_is_promoted"),
    "p31_ask_never_answered_is_not_noticed_by_arm": (
        SIMULATION, "p31_a_node_that_the_leader_cannot_reach_changes_nothing"),
    "p32_blue_that_does_not_run_keeps_its_restart_policy": (
        SIMULATION, "p23_p32_an_engine_that_was_stopped_by_hand_is_not_started_beside_its_successor"),
}  # fmt: skip
"""By reproduction: file under tests/ and test. Without p32b_restarting_status_of_fake, which asserts nothing."""


ON_REAL_PARTS = {
    "p6_port_and_keys_change_before_anything_is_planned_or_locked": (
        "real/test_agents.py", "p6_agents_do_not_change_while_a_service_does"),
    "p10_newer_journal_is_a_bug_for_an_older_cli": (
        "guard/disk/test_state.py", "what_a_newer_version_wrote_is_refused_with_the_next_step"),
    "p11_an_unreadable_journal_keeps_the_guard_from_being_replaced": (
        GUARD, "p11_an_unreadable_journal_stops_neither_its_guard_nor_another_service"),
}  # fmt: skip
"""By reproduction: what the simulation's world leaves out: how an agent is replaced, the bytes of a journal, and a
second service."""


@pytest.mark.parametrize(("file", "name"), [*SCENARIOS.values(), *ON_REAL_PARTS.values()])
def test_a_fault_of_the_first_design_has_a_test(file: str, name: str) -> None:
    assert re.findall(rf"^def test_{name}\(", (TESTS / file).read_text(), re.MULTILINE)


def test_every_one_is_a_scenario_of_the_simulation() -> None:
    assert {file for file, _ in SCENARIOS.values()} == {SIMULATION}
    assert set(ON_REAL_PARTS) <= set(SCENARIOS)
