/* Whether a sample is plausible, when it was measured, and the speed of its joint.

   A sample is rejected if it is not finite, or if the joint has moved further than it can. One is left out, and the last
   good one is used; two in a row stop the machine. An encoder that stands still while the model moves is stuck. A
   flipped sign or a drifting zero moves no faster than the machine can: only redundant measurements show these. */

static const double MARGIN = 1.5; /* largest plausible speed between two samples, in terms of the speed limit */
static const double STEPS = 3.0;  /* further plausible motion between two samples, in resolutions */

/* An encoder that stands still is stuck if the model, less friction, moves by so many smallest visible motions. */
static const double STUCK_TRAVEL = 10.0;
static const double STUCK_TIME = 0.02; /* shortest standstill of a stuck encoder [s] */

/* Longest time in which the travel is counted [s]: the model may creep while static friction holds the real joint. */
static const double STUCK_WINDOW = 0.1;

enum { REJECTED_IN_A_ROW = 2, MISSCALED_IN_A_ROW = 2 }; /* samples, or windows of the scale, that stop the machine */

/* A row of the constant Jacobian times a vector. */
static double row_times(const sensing *s, int i, const double *x)
{
  const sense_channel *c = &s->channel[i];
  double sum = 0.0;
  for (int j = c->first_factor; j < c->first_factor + c->factors; ++j) sum += s->factor[j] * x[s->factor_index[j]];
  return sum;
}

/* The displacements at a pose, into `there`. */
static void find_positions(sensing *s, const double *q, double *there)
{
  for (int i = 0; i < s->channels && s->linear; ++i) there[i] = row_times(s, i, q);
  if (s->linear) return;
  copy(s->positions.arguments[0], q, s->n);
  copy(there, evaluate(&s->positions), s->channels);
}

/* The displacements at the start point of the solver, computed once in a tick. */
static const double *predicted_positions(sensing *s)
{
  if (!s->placed) find_positions(s, s->step_q, s->predicted);
  s->placed = 1;
  return s->predicted;
}

static void add_verdict(sensing *s, int found, int channel, int stops, double a, double b, double c)
{
  s->verdict[s->verdicts++] = (sense_verdict){found, channel, stops, CAUSE_NONE, {a, b, c}};
}

/* Largest motion between two samples, by the speed limit or, without one, by the fastest of the speeds. */
static double possible_motion(const sense_channel *c, double interval, double rate, double velocity, double model)
{
  double possible = STEPS * c->resolution, fastest = 0.0;
  if (is_finite(c->speed_limit)) return possible + MARGIN * c->speed_limit * interval;
  if (is_finite(rate)) fastest = larger(fastest, fabs(rate));
  if (is_finite(velocity)) fastest = larger(fastest, fabs(velocity));
  if (is_finite(model)) fastest = larger(fastest, fabs(model));
  return possible + MARGIN * fastest * interval + c->leap;
}

/* Whether a sample is plausible; a verdict if it is not. */
static int plausible(sensing *s, int i, long long time, int stops)
{
  const sense_channel *c = &s->channel[i];
  double position = s->position[i], velocity = s->velocity[i], rate = s->rates[i];
  double elapsed = seconds(time - s->accepted_time[i]), ordinary = smaller(elapsed, s->interval);
  double step, possible;
  if (!is_finite(position)) {
    add_verdict(s, FOUND_POSITION, i, stops, position, 0.0, 0.0);
    return 0;
  }
  if (fabs(velocity) == INFINITY) {
    add_verdict(s, FOUND_VELOCITY, i, stops, velocity, 0.0, 0.0);
    return 0;
  }
  if (s->accepted_time[i] == NEVER) return 1;
  /* after the ordinary interval the joint continues at its speed: a gap does not allow a larger jump */
  step = position - (s->accepted_position[i] + rate * (elapsed - ordinary));
  possible = possible_motion(c, ordinary, rate, velocity, s->expected[i]);
  if (fabs(step) <= possible) return 1;
  add_verdict(s, FOUND_JUMP, i, stops, step, elapsed * 1e3, possible);
  return 0;
}

/* Counts the motion of the model while the encoder stands still; a verdict if it is stuck. Speed that friction may take
   from the model's does not count: a joint that friction may hold is not stuck. */
static void watch_standstill(sensing *s, int i, long long time)
{
  const sense_channel *c = &s->channel[i];
  double position = s->position[i], model = s->expected[i], elapsed, against, still;
  if (s->accepted_time[i] == NEVER || position != s->accepted_position[i] || !is_finite(model)) {
    s->travel[i] = 0.0;
    s->still_since[i] = time;
    return;
  }
  elapsed = seconds(time - s->accepted_time[i]);
  against = copysign(larger(0.0, fabs(model) - c->held * elapsed), model);
  still = seconds(time - s->still_since[i]);
  s->travel[i] = s->travel[i] + against * elapsed;
  if (fabs(s->travel[i]) > STUCK_TRAVEL * c->visible && still >= STUCK_TIME)
    add_verdict(s, FOUND_STUCK, i, 1, position, still, s->travel[i]);
  else if (still >= STUCK_WINDOW) {
    s->travel[i] = 0.0;
    s->still_since[i] = time;
  }
}

/* Whether the positions of a channel move as fast as its speeds say: wrong counts per turn, units and signs show here.

       |y(t) - y(t0) - int y' dt|  >  SHARE int |y'| dt + errors of two positions and of the speed

   A window that holds too little motion to tell a scale of 4 apart goes on. The path, not the displacement, is the
   measure, so a vibration whose speed lags is no finding. */

static const double SCALE_WINDOW = 0.03; /* shortest time over which motion and speed are compared [s] */
static const double SCALE_LONGEST = 0.3; /* time after which a window without enough motion starts again [s] */
static const double SCALE_SHARE = 0.4;   /* allowed difference, as a share of the path: filtered speeds lag */
static const double SCALE_ENOUGH = 3.0;  /* a window is judged if its path is this many times its samples' errors */
static const double SCALE_TOLD = 0.5;    /* a displacement below this share of the path tells nothing: it turns back */
static const double SCALE_GAP = 3.0;     /* intervals without a sample after which a window starts again */

static void begin_scale(sensing *s, int i, long long time, int beyond)
{
  s->scale_since[i] = time;
  s->scale_start[i] = s->position[i];
  s->scale_moved[i] = s->scale_path[i] = 0.0;
  s->scale_beyond[i] = beyond;
}

/* Adds an accepted sample to the window of its channel. */
static void compare_scale(sensing *s, int i, long long time)
{
  const sense_channel *c = &s->channel[i];
  double step = seconds(time - s->accepted_time[i]), mean = 0.5 * (s->accepted_velocity[i] + s->velocity[i]);
  double moved = s->scale_moved[i] + step * mean, path = s->scale_path[i] + step * fabs(mean);
  double elapsed = seconds(time - s->scale_since[i]), travelled = s->position[i] - s->scale_start[i];
  double errors = 2.0 * c->position_error + c->speed_error * elapsed;
  int beyond = (int)s->scale_beyond[i];
  if (s->accepted_time[i] == NEVER || !is_finite(mean) || step > SCALE_GAP * s->interval) begin_scale(s, i, time, 0);
  else if (elapsed >= SCALE_WINDOW && fabs(travelled - moved) > SCALE_SHARE * path + errors) {
    begin_scale(s, i, time, beyond + 1);
    if (beyond + 1 >= MISSCALED_IN_A_ROW) add_verdict(s, FOUND_SCALE, i, 1, travelled, elapsed, moved);
  } else if (elapsed >= SCALE_WINDOW && (path > SCALE_ENOUGH * errors || elapsed >= SCALE_LONGEST))
    begin_scale(s, i, time, fabs(moved) > SCALE_TOLD * path ? 0 : beyond);
  else {
    s->scale_moved[i] = moved;
    s->scale_path[i] = path;
  }
}

/* Filtered speed of a channel: an alpha-beta observer with a double pole at exp(-2 T / tau); T is the actual time between
   two samples, and the rate lags by tau - T/2. It starts from the last velocity that the node measured, if any.
   Source: Benedict, Bordner 1962; alpha and beta of critical damping, alpha = 1 - p^2, beta = (1 - p)^2. */
static double filtered_rate(sensing *s, int i, long long time)
{
  double position = s->position[i], elapsed, p, predicted, innovation;
  if (s->accepted_time[i] != NEVER && !s->filtered && s->accepted_velocity[i] == s->accepted_velocity[i]) {
    s->track_time[i] = s->accepted_time[i];
    s->track_position[i] = s->accepted_position[i];
    s->track_rate[i] = s->accepted_velocity[i];
  }
  elapsed = seconds(time - s->track_time[i]);
  if (s->track_time[i] == NEVER) {
    s->track_position[i] = position;
    s->track_rate[i] = 0.0;
  } else if (elapsed <= 0.0) return s->track_rate[i];
  else {
    p = exp(-2.0 * elapsed / s->filter_time);
    predicted = s->track_position[i] + s->track_rate[i] * elapsed;
    innovation = position - predicted;
    s->track_position[i] = predicted + (1.0 - p * p) * innovation;
    s->track_rate[i] = s->track_rate[i] + (1.0 - p) * (1.0 - p) / elapsed * innovation;
  }
  s->track_time[i] = time;
  return s->track_rate[i];
}

/* Checks a new sample of a channel; returns whether it is accepted. */
static int accept(sensing *s, int i, long long time)
{
  double rate = s->rates[i], velocity = s->velocity[i];
  s->seen[i] = time;
  if (!plausible(s, i, time, s->rejected[i] + 1 >= REJECTED_IN_A_ROW)) {
    ++s->rejected[i];
    return 0;
  }
  s->rejected[i] = 0;
  watch_standstill(s, i, time);
  compare_scale(s, i, time);
  s->before[i] = rate;
  s->rates[i] = s->filtered || velocity != velocity ? filtered_rate(s, i, time) : velocity;
  s->accepted_position[i] = s->position[i];
  s->accepted_velocity[i] = velocity;
  s->accepted_time[i] = time;
  return 1;
}

/* Distance between a sample that was measured at a moment, carried to now at the model's speed, and the model's. */
static double misfit(const sensing *s, int i, long long moment, long long now)
{
  return fabs(s->position[i] + s->expected[i] * (double)(now - moment) / SECOND - s->predicted[i]);
}

/* Time at which a sample was measured [ns]: that of the SYNC or command that it answers.

   It answers one that no reply has answered yet. Where a reply is missing, it may have been lost, or be this one: then
   the one counts at which the position fits the motion of the model, or the last one where all of them fit. A reply that
   comes within a period of its command is dated at its receipt, and so is one that nothing known has asked for. */
static long long sampled(sensing *s, int i, long long now)
{
  const sense_channel *c = &s->channel[i];
  const long long *asked = c->feedback == ON_SYNC ? s->syncs : s->commands;
  long long received = s->sample_time[i], open[ASKED], best;
  double error;
  int sent = 0, count = 0;
  if (c->feedback == ON_CYCLIC) return received;
  for (int j = 0; j < ASKED; ++j) {
    if (asked[j] < 0 || asked[j] > received) continue;
    sent = 1;
    if (asked[j] > s->seen[i]) open[count++] = asked[j];
  }
  if (!sent) return received;
  if (received == s->received[i] || !count) return s->seen[i];
  s->received[i] = received;
  if (c->feedback == ON_REPLY)
    for (int j = 0; j < count; ++j)
      if (received - open[j] <= s->period) open[j] = received;
  if (count == 1 || s->seen[i] < 0 || !is_finite(s->expected[i])) return open[0];
  predicted_positions(s);
  best = open[0];
  for (int j = 1; j < count; ++j)
    if (misfit(s, i, open[j], now) < misfit(s, i, best, now)) best = open[j];
  error = misfit(s, i, best, now) + larger(c->resolution, 2.0 * c->position_error);
  return error < misfit(s, i, open[0], now) ? best : open[0];
}
