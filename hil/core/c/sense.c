/* Samples to the state of the machine: hil.sensing. */

/* Number of a bus on which a sample of this tick is missing; -1: none is. */
int tick_missing(const tick *k)
{
  for (int i = 0; i < k->channels; ++i) {
    const tick_channel *each = &k->channel[i];
    if (each->awaited && k->sample_time[i] < (each->synced ? *k->began : *k->written)) return each->bus;
  }
  return -1;
}

static long long sampled(const tick *k, long long received)
{
  if (0 <= *k->sync && *k->sync <= received) return *k->sync;
  return 0 <= *k->sync_before && *k->sync_before <= received ? *k->sync_before : received;
}

static void begin_scale(tick *k, int i, long long time)
{
  k->scale_since[i] = time;
  k->scale_start[i] = k->position[i];
  k->scale_moved[i] = k->scale_path[i] = 0.0;
  k->scale_beyond[i] = 0;
}

/* Adds a sample to the comparison of positions with speeds: hil.sensing.scale. */
static int compare_scale(tick *k, int i, long long time)
{
  const tick_channel *c = &k->channel[i];
  double step = seconds(time - k->accepted_time[i]), mean = 0.5 * (k->accepted_velocity[i] + k->velocity[i]);
  double moved = k->scale_moved[i] + step * mean, path = k->scale_path[i] + step * fabs(mean);
  double elapsed = seconds(time - k->scale_since[i]), travelled = k->position[i] - k->scale_start[i];
  double errors = 2.0 * c->position_error + c->speed_error * elapsed;
  if (!is_finite(mean) || step > k->scale_gap * c->interval) begin_scale(k, i, time);
  else if (elapsed < k->scale_window) {
    k->scale_moved[i] = moved;
    k->scale_path[i] = path;
  } else if (fabs(travelled - moved) > k->scale_share * path + errors) return give_back(k, "a speed that does not fit");
  else if (path > k->scale_enough * errors || elapsed >= k->scale_longest) {
    long long beyond = fabs(moved) > k->scale_told * path ? 0 : k->scale_beyond[i];
    begin_scale(k, i, time);
    k->scale_beyond[i] = beyond;
  } else {
    k->scale_moved[i] = moved;
    k->scale_path[i] = path;
  }
  return 0;
}

/* Accepts a new sample of a channel, as hil.sensing.plausibility.judge does it. */
int tick_accept(tick *k, int i, long long time)
{
  const tick_channel *c = &k->channel[i];
  double position = k->position[i], velocity = k->velocity[i], model = k->expected[i], rate = k->rates[i];
  double last = k->accepted_position[i], elapsed = seconds(time - k->accepted_time[i]);
  double ordinary = elapsed < c->interval ? elapsed : c->interval;
  double step = position - (last + rate * (elapsed - ordinary)), possible = k->steps * c->resolution;
  if (!is_finite(position) || !is_finite(velocity)) return give_back(k, "a sample that is not finite");
  if (is_finite(c->speed_limit)) possible = possible + k->margin * c->speed_limit * ordinary;
  else {
    double fastest = larger(fabs(rate), fabs(velocity));
    fastest = larger(fastest, fabs(model));
    possible = possible + k->margin * fastest * ordinary + c->leap;
  }
  if (!(fabs(step) <= possible)) return give_back(k, "a sample that is not plausible");
  if (position != last || !is_finite(model)) {
    k->travel[i] = 0.0;
    k->still_since[i] = time;
  } else {
    double against = copysign(larger(0.0, fabs(model) - c->held * elapsed), model);
    double travel = k->travel[i] + against * elapsed, still = seconds(time - k->still_since[i]);
    if (fabs(travel) > k->stuck_travel * c->visible && still >= k->stuck_time)
      return give_back(k, "an encoder that stands still");
    k->travel[i] = travel;
    if (still >= k->stuck_window) {
      k->travel[i] = 0.0;
      k->still_since[i] = time;
    }
  }
  if (compare_scale(k, i, time)) return GIVEN_BACK;
  k->accepted_position[i] = position;
  k->accepted_velocity[i] = velocity;
  k->accepted_torque[i] = k->torque[i];
  k->accepted_time[i] = k->seen[i] = time;
  k->before[i] = rate;
  k->rates[i] = velocity;
  return 0;
}

static void predict(tick *k, double t, double h, const double *q, const double *v, double *q_ahead, double *v_ahead)
{
  double **in = k->predict.arguments, *ahead = k->predict.results[0];
  size_t size = k->n * sizeof *q;
  in[0][0] = t;
  in[0][1] = h;
  memcpy(in[1], q, size);
  memcpy(in[1] + k->n, v, size);
  memcpy(in[2], k->carried, k->m * sizeof *q);
  k->predict.function((const double **)in, k->predict.results);
  memcpy(q_ahead, ahead, size);
  memcpy(v_ahead, ahead + k->n, size);
}

/* State of the machine from the samples: hil.sensing.sensing, and the prediction for the law. */
int tick_sense(tick *k, long long now)
{
  int n = k->n, m = k->channels;
  double t = seconds(now), elapsed = seconds(now - *k->now);
  double *x = k->sense.arguments[0], *estimate = k->sense.results[0];
  double *q = k->law_q, *v = k->law_v; /* the model's step, the start of the solver */
  const double *residual = estimate + 2 * n, *bound = residual + m;
  if (!(elapsed > 0.0)) return give_back(k, "no time has passed");
  if (k->free) predict(k, t - elapsed, elapsed, k->q, k->v, q, v);
  else { /* nobody knows what moves the machine: it goes on at its speed */
    memcpy(q, k->q, n * sizeof *q);
    memcpy(v, k->v, n * sizeof *q);
  }
  if (!all_finite(q, n) || !all_finite(v, n)) return give_back(k, "a prediction that is not finite");
  for (int i = 0; i < m; ++i) {
    const tick_channel *c = &k->channel[i];
    double speed = k->free ? 0.0 : NAN;
    for (int j = c->first_factor; j < c->first_factor + c->factors; ++j)
      speed = speed + k->factor[j] * v[k->factor_index[j]];
    k->expected[i] = speed;
  }
  for (int i = 0; i < k->m; ++i) k->silences[i] = k->alive[i] ? seconds(now - k->alive[i]) : 0.0;
  for (int i = 0; i < m; ++i) {
    long long time = k->channel[i].synced ? sampled(k, k->sample_time[i]) : k->sample_time[i];
    double age, rate;
    if (k->channel[i].synced && time != k->seen[i] && time == *k->sync && k->seen[i] < *k->sync_before)
      return give_back(k, "a SYNC without an answer");
    if (k->channel[i].mutes && k->sample_time[i] < *k->written) return give_back(k, "a drive without an answer");
    if (k->channel[i].replies && time != k->seen[i] &&
        (time < *k->asked || seconds(time - *k->asked) > k->period || k->seen[i] >= *k->asked ||
         k->seen[i] < *k->asked_before))
      return give_back(k, "a command without an answer");
    if (time != k->seen[i] && tick_accept(k, i, time)) return GIVEN_BACK;
    age = seconds(now - k->accepted_time[i]);
    if (age > k->old) return give_back(k, "an old sample");
    rate = k->rates[i];
    k->ages[i] = age;
    k->displacements[i] = k->accepted_position[i] + rate * age;
    k->slack[i] = fabs(rate) * k->skew + fabs(rate - k->before[i]) * (age < 1.0 ? age : 1.0);
  }
  x[0] = t;
  x[1] = k->free ? 0.0 : elapsed;
  memcpy(x + 2, q, n * sizeof *x);
  memcpy(x + 2 + n, v, n * sizeof *x);
  memcpy(x + 2 + 2 * n, k->displacements, m * sizeof *x);
  memcpy(x + 2 + 2 * n + m, k->rates, m * sizeof *x);
  memcpy(x + 2 + 2 * n + 2 * m, k->slack, m * sizeof *x);
  k->sense.function((const double **)k->sense.arguments, k->sense.results);
  if (!all_finite(estimate, 2 * n)) return give_back(k, "an estimate that is not finite");
  if (estimate[2 * n + 3 * m] != (double)n) return give_back(k, "a direction that is not measured");
  k->residual = 0.0;
  for (int i = 0; i < m; ++i) {
    double most = k->residual_tolerance == k->residual_tolerance ? k->residual_tolerance : bound[i] + k->channel[i].floor;
    if (!(fabs(residual[i]) <= most)) return give_back(k, "encoders that contradict each other");
    k->residual = i ? larger(k->residual, fabs(residual[i])) : fabs(residual[i]);
  }
  if (k->tracks && k->free && track(k, t, elapsed, estimate, estimate + n, v)) return GIVEN_BACK;
  memcpy(k->q, estimate, n * sizeof *q);
  memcpy(k->v, estimate + n, n * sizeof *q);
  *k->now = now;
  if (k->predicts && k->free) predict(k, t, k->period, k->q, k->v, q, v);
  else {
    memcpy(q, k->q, n * sizeof *q);
    memcpy(v, k->v, n * sizeof *q);
    if (k->estimates) { /* it needs the positions at the moment when the tick was due */
      double late = seconds(now - *k->due);
      for (int i = 0; i < n; ++i) q[i] -= late * v[i];
    }
  }
  return k->failed ? give_back(k, "an exception") : 0;
}
