/* Samples to the state of the machine: hil.sensing. */

static const double FLOOR = 1e-3; /* residual that is always allowed, in errors of a sample at standstill: rounding */
enum { CONTRADICTIONS_IN_A_ROW = 2 }; /* ticks that stop the machine */

/* The state after h seconds under constant torques, in the results of the function. */
static const double *predict(sensing *s, double t, double h, const double *q, const double *v, const double *u)
{
  const tick_call *call = &s->predict;
  int n = s->n;
  double **in = call->arguments;
  in[0][0] = t;
  in[0][1] = h;
  copy(in[1], q, n);
  copy(in[1] + n, v, n);
  copy(in[2], u, s->m);
  return evaluate(call);
}

/* Remembers when a SYNC or the first of the commands was sent, the newest first. */
static void remember(long long *asked, long long moment)
{
  if (moment == NEVER || moment == asked[0]) return;
  memmove(asked + 1, asked, (ASKED - 1) * sizeof *asked);
  asked[0] = moment;
}

/* The start point of the solver: the model's prediction, with the speeds that it expects, or the last state, which then
   moves on by this time, which is returned. */
static double find_start(sensing *s, double t, double elapsed, int free)
{
  int n = s->n;
  const double *ahead;
  copy(s->step_q, s->q, n);
  copy(s->step_v, s->v, n);
  for (int i = 0; i < s->channels; ++i) s->expected[i] = NAN;
  s->placed = 0;
  if (!s->predict.function || !free || !(elapsed > 0.0)) return elapsed;
  ahead = predict(s, t - elapsed, elapsed, s->q, s->v, s->command);
  if (!all_finite(ahead, 2 * n)) return elapsed;
  copy(s->step_q, ahead, n);
  copy(s->step_v, ahead + n, n);
  for (int i = 0; i < s->channels && s->constant; ++i) s->expected[i] = row_times(s, i, s->step_v);
  if (!s->constant) {
    s->speeds_at.arguments[0][0] = t;
    copy(s->speeds_at.arguments[1], s->step_q, n);
    copy(s->speeds_at.arguments[2], s->step_v, n);
    copy(s->expected, evaluate(&s->speeds_at), s->channels);
  }
  return 0.0;
}

/* Displacement, speed and age of a channel at the present instant; returns whether it has sent a sample. Without a new
   one for `old` the channel follows the model instead. Where that says nothing, as while brakes close, a sample is carried
   on at its speed for `carried`; then the joint counts as standing there. */
static int read_channel(sensing *s, int i, long long now)
{
  int accepted = 0;
  double age, rate, carried;
  if (s->sample_time[i] != NEVER) {
    long long time = sampled(s, i, now);
    accepted = time != s->seen[i] && accept(s, i, time);
  }
  s->speeds[i] = rate = s->rates[i];
  if (s->sample_time[i] == NEVER || s->accepted_time[i] == NEVER) {
    s->displacements[i] = NAN;
    s->ages[i] = INFINITY;
    s->slack[i] = 0.0;
    return 0;
  }
  s->ages[i] = age = seconds(now - s->accepted_time[i]);
  carried = age < s->carried ? age : s->carried;
  if (carried < age) s->speeds[i] = 0.0;
  s->displacements[i] = s->accepted_position[i] + rate * carried;
  if (age > s->old && !accepted && is_finite(s->expected[i])) {
    s->displacements[i] = predicted_positions(s)[i];
    s->speeds[i] = s->expected[i];
  }
  /* error of the extrapolation: the uncertain age, the change of the speed since the sample, and motion after `carried` */
  s->slack[i] = fabs(rate) * s->interval + fabs(rate - s->before[i]) * (age < 1.0 ? age : 1.0) + fabs(rate) * (age - carried);
  return 1;
}

/* Coordinates and speeds from the displacements and their rates. */
static const double *solve(sensing *s, double t, double carry)
{
  int n = s->n, m = s->channels;
  double *x = s->coordinates.arguments[0];
  x[0] = t;
  x[1] = carry;
  copy(x + 2, s->step_q, n);
  copy(x + 2 + n, s->step_v, n);
  copy(x + 2 + 2 * n, s->displacements, m);
  copy(x + 2 + 2 * n + m, s->speeds, m);
  copy(x + 2 + 2 * n + 2 * m, s->slack, m);
  return evaluate(&s->coordinates);
}

/* Whether displacements that are measured more than once contradict each other; two ticks in a row stop the machine.

   While every sample is within its error, the residual stays below its bound for every motion of the machine. A larger
   one means that a sample, a zero, a sign or the model is wrong. The verdict names the channel whose error alone explains
   the residual best: it has the largest residual relative to the square root of its redundancy. */
static int contradicts(sensing *s, const double *residual)
{
  int m = s->channels, within = 1, worst;
  const double *bound = residual + m, *redundancy = bound + m;
  double fixed = s->residual_tolerance, most;
  for (int i = 0; i < m; ++i) {
    most = fixed == fixed ? fixed : bound[i] + FLOOR * s->channel[i].resolution;
    within = within && fabs(residual[i]) <= most;
  }
  s->contradictions = within ? 0 : s->contradictions + 1;
  if (within) return 0;
  for (int i = 0; i < m; ++i)
    s->misfits[i] = fabs(residual[i]) * s->channel[i].weight / sqrt(larger(redundancy[i], 1e-12));
  worst = largest_of(s->misfits, m);
  most = fixed == fixed ? fixed : bound[worst];
  add_verdict(s, FOUND_CONTRADICTION, worst, s->contradictions >= CONTRADICTIONS_IN_A_ROW, residual[worst], most, 0.0);
  return 1;
}

/* The state that the law gets: a period ahead, when its torques act, or at the moment when the tick was due. */
static void find_law_state(sensing *s, double t, double late, int free)
{
  int n = s->n, leads = s->ahead > 0.0 && free && s->valid;
  const double *q = s->estimate_q, *v = s->estimate_v;
  if (leads) {
    q = predict(s, t, s->ahead, q, v, s->command);
    v = q + n;
  }
  copy(s->law_q, q, n);
  copy(s->law_v, v, n);
  for (int i = 0; i < n && s->evenly && !leads; ++i) s->law_q[i] -= late * v[i];
}

/* State of the machine from the newest samples, and the verdicts; returns how many there are.

   Each sample is checked by itself, then extrapolated to the present instant with its speed, and only then are the
   samples combined. So one bad sample is simply left out.

   `due`: when the tick was due [ns]. `free`: whether the torques in `command` alone have moved the machine. `sync`, `command`: when the last SYNC and the
   first of the last commands were sent [ns]; NEVER: none was. */
int sense_read(sensing *s, double t, long long now, long long due, int free, long long sync, long long command)
{
  int n = s->n, complete = 1, finite;
  double elapsed = seconds(now - s->now), carry;
  const double *estimate;
  s->verdicts = 0;
  s->read = now;
  remember(s->syncs, sync);
  remember(s->commands, command);
  carry = find_start(s, t, elapsed, free);
  for (int i = 0; i < s->channels; ++i) complete = read_channel(s, i, now) && complete;
  if (!complete) {
    for (int j = 0; j < n; ++j) s->carried_q[j] = s->step_q[j] + carry * s->step_v[j];
    find_positions(s, s->carried_q, s->predicted);
    for (int i = 0; i < s->channels; ++i)
      if (s->displacements[i] != s->displacements[i]) s->displacements[i] = s->predicted[i];
  }
  estimate = solve(s, t, carry);
  copy(s->estimate_q, estimate, n);
  copy(s->estimate_v, estimate + n, n);
  finite = all_finite(estimate, 2 * n);
  if (complete && contradicts(s, estimate + 2 * n)) {
    /* which sample is wrong is not known: the prediction goes on; where the model says nothing, for one tick */
    int goes_on = carry == 0.0 || s->contradictions < CONTRADICTIONS_IN_A_ROW;
    for (int j = 0; j < n; ++j) {
      s->estimate_v[j] = goes_on ? s->step_v[j] : 0.0;
      s->estimate_q[j] = s->step_q[j] + carry * s->estimate_v[j];
    }
  }
  if (s->tracking) {
    for (int j = 0; j < n; ++j) s->innovation[j] = s->estimate_v[j] - s->step_v[j];
    if (track_judge(s->tracking, t, elapsed, s->estimate_q, carry == 0.0 && complete && finite ? s->innovation : 0,
                    free ? s->command : 0, s->displacements, s->torque, s->speeds))
      s->verdict[s->verdicts++] = s->tracking->verdict;
  }
  if (finite) {
    copy(s->q, s->estimate_q, n);
    copy(s->v, s->estimate_v, n);
    s->now = now;
  }
  s->residual = 0.0;
  for (int i = 0; i < s->channels; ++i) {
    double residual = fabs(estimate[2 * n + i]);
    s->residual = i ? larger(s->residual, residual) : residual;
  }
  s->valid = complete && finite && estimate[2 * n + 3 * s->channels] == (double)n;
  find_law_state(s, t, seconds(now - due), free);
  return s->verdicts;
}
