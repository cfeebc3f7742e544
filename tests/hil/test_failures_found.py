"""Failures of the loop that were found on machines that fall, brake and differ: each has tests that it fails."""

from pathlib import Path

import pytest

FOUND: dict[str, tuple[str, ...]] = {
    "one damping for all drives leaves speed at the end of a stop": (
        "test_controlled_stop.py::test_every_joint_comes_to_rest_and_none_speeds_up",
        "test_stops_in_check.py::test_check_says_from_which_speed_and_pose_each_drive_stops_and_what_cannot_stop_in_time",
    ),
    "the order to go off cuts the drive's own ramp": (
        "test_ladder.py::test_a_drive_that_still_moves_after_stop_time_stops_by_its_own_ramp_before_it_goes_off",
    ),
    "whether a machine falls is judged at the start pose alone": (
        "test_falling.py::test_a_link_that_hangs_at_the_start_and_is_led_up_is_refused_without_a_brake",
        "test_falling.py::test_a_link_that_was_led_up_is_held_in_a_stop",
    ),
    "a rejected sample does not age": (
        "test_rules.py::test_rejected_samples_do_not_renew_the_age_so_an_axis_without_an_encoder_is_stale_and_then_lost",
        "test_ladder.py::test_an_axis_whose_encoder_is_wrong_stops_by_the_model_and_its_brake",
    ),
    "a stale axis gets no holding torque": (
        "test_controlled_stop.py::test_an_axis_whose_samples_are_late_is_held_by_its_last_sound_pose",
    ),
    "a motor without torque is seen late or never": (
        "test_lost_torque.py::test_a_motor_without_torque_is_named_within_0_3_s",
        "test_lost_torque.py::"
        "test_a_small_torque_that_drives_a_joint_is_missed_within_0_3_s_where_its_drive_reports_none",
    ),
    "an end takes the torque away before the brake is closed": (
        "test_ladder.py::test_torque_is_held_until_the_brake_is_closed",
        "test_ladder.py::test_a_vertical_axis_does_not_fall_at_the_normal_end",
        "test_stops_in_check.py::"
        "test_check_says_how_far_an_axis_falls_until_its_brake_is_closed_and_the_machine_falls_so_far",
    ),
    "stage zero has the full torque, and proves no polarity": (
        "test_stage_zero.py::test_a_vertical_axis_of_the_wrong_polarity_is_named_and_held_within_5_mm",
        "test_stage_zero.py::"
        "test_an_axis_that_friction_keeps_from_being_proved_is_stopped_at_once_if_its_polarity_is_wrong",
        "test_stage_zero.py::test_torques_in_stage_zero_are_those_that_hold_the_pose_and_little_more",
        "test_stage_zero.py::test_one_of_redundant_motors_of_the_wrong_polarity_is_named_though_speeds_hardly_change",
    ),
    "positions are never compared with speeds": ("test_scale.py::test_a_wrong_scale_or_sign_of_positions_is_named",),
    "a speed limit lies beyond what a frame can say": (
        "test_frame_ends.py::test_a_speed_limit_whose_runaway_no_frame_can_say_is_refused_with_the_largest_that_fits",
    ),
    "a joint past its position limit speeds up in the stop": (
        "test_controlled_stop.py::test_joints_that_are_stopped_beyond_their_limits_come_to_rest",
        "test_stages.py::test_a_joint_beyond_its_limit_keeps_what_holds_it_and_is_braked_whichever_way_it_moves",
    ),
    "errors on one bus let the machine coast": (
        "test_ladder.py::test_errors_on_one_bus_do_not_let_the_machine_coast",
        "test_ladder.py::test_the_drives_of_a_dead_bus_stop_by_themselves_and_those_of_the_other_under_control",
    ),
    "it is not said what a drive does without the loop": (
        "test_ladder.py::test_the_pre_flight_list_says_how_an_axis_stops_and_how_far_it_falls",
        "test_ladder.py::test_a_cut_bus_leaves_a_vertical_axis_to_the_ramp_and_brake_of_its_drive",
        "test_stops_in_check.py::"
        "test_check_says_how_far_an_axis_goes_on_when_its_bus_is_cut_and_the_machine_goes_no_farther",
    ),
    "a rule is off in ordinary ticks in C": (
        "test_rules.py::test_a_rule_that_is_added_fires_in_ordinary_ticks_in_c_at_the_right_tick",
    ),
    "temperatures and supplies are not watched": (
        "test_gauges.py::test_a_hot_drive_is_reported_once_and_before_it_switches_off_and_the_ticks_go_on_in_c",
        "test_gauges.py::test_a_common_supply_that_braking_raises_is_reported_before_it_trips",
    ),
    "a start that is wrong by a turn of the motor passes": (
        "test_frame_ends.py::test_the_start_tolerance_never_takes_a_wrong_turn_of_the_motor_for_the_start_pose",
    ),
    "a reply later than a period is dated a SYNC too young": (
        "test_late_replies.py::test_a_reply_that_is_late_by_more_than_a_period_is_as_old_as_it_is",
        "test_late_replies.py::test_a_late_reply_to_a_command_is_never_dated_too_young",
    ),
    "more frames than a queue holds end the run": (
        "test_many_drives.py::test_frames_that_a_queue_does_not_hold_are_sent_as_room_comes_by_both_ticks",
        "test_many_drives.py::test_motors_that_would_reply_with_one_id_are_refused",
    ),
    "legal dialects of CiA 402 are refused": (
        "test_drive_cia402.py::test_a_drive_that_keeps_bit_30_and_changes_ids_only_while_a_pdo_is_off_is_let_in",
        "test_drive_cia402.py::test_reactions_that_a_drive_does_not_have_are_let_in_and_named",
        "test_drive_cia402.py::test_a_drive_without_a_heartbeat_consumer_is_let_in_only_if_the_config_says_so",
    ),
    "an ODrive limits torque near its speed limit unsaid": (
        "test_emulator_odrive.py::test_torque_is_limited_by_the_distance_from_the_speed_limit_at_standstill_too",
        "test_drive_odrive.py::"
        "test_a_saved_speed_limit_below_what_torque_needs_is_refused_and_one_that_nobody_knows_is_reported",
    ),
    "the emulated drives' own braking is unstable on light joints": (
        "test_emulator_contacts.py::test_drives_brake_by_themselves_down_a_ramp_and_hold_any_joint",
    ),
    "a drive that left NMT operational counts as off": (
        "test_ladder.py::test_a_drive_that_has_left_nmt_operational_is_not_confirmed_off_by_that",
    ),
    "commands that wait in a queue enable drives that restart": (
        "test_ladder.py::test_commands_that_wait_on_a_dead_bus_enable_no_drive_when_all_restart",
    ),
    "the test of a watchdog lets an arm fall": (
        "test_stage_zero.py::test_an_axis_that_would_fall_is_not_let_go_to_test_its_watchdog",
        "test_stage_zero.py::test_an_axis_that_is_let_go_and_falls_ends_the_test_of_its_watchdog",
    ),
    "a bring-up that fails is called a bug": (
        "test_ways_out.py::test_a_bring_up_that_fails_ends_with_exit_3_and_its_own_sentence",
    ),
    "emulated friction is unstable, and plug-ins, signals and long answers end the loop": (
        "test_emulator_contacts.py::test_friction_is_stable_on_the_lightest_joint",
        "test_drive_mit.py::test_late_replies_to_older_commands_do_not_prove_that_a_motor_is_off",
        "test_ways_out.py::test_a_driver_that_ends_the_program_is_exit_3_with_its_line",
        "test_ways_out.py::test_signals_that_would_kill_the_loop_ask_for_the_controlled_stop",
        "test_ways_out.py::test_an_object_of_another_length_is_an_error_of_its_drive",
    ),
    "the bring-up of one drive starves the watchdogs of others": (
        "test_many_drives.py::test_no_drive_starves_while_others_are_brought_up_even_at_three_periods",
    ),
}
"""What was found -> tests that fail where it is so."""


@pytest.mark.parametrize("found", FOUND)
def test_what_was_found_has_tests(found: str) -> None:
    for each in FOUND[found]:
        file, name = each.split("::")
        assert f"def {name}(" in (Path(__file__).parent / file).read_text(), each
