/* The row of a tick that was done in C, and the durations of its parts. */

/* Counts a duration [ns] in a block of hil.loop.timing: number, least, most, sum, squares in two words, bins. */
void log_count(unsigned long long *counts, long long duration)
{
  unsigned long long d = duration < 0 ? 0 : (unsigned long long)duration, high = d >> 32, low = d & 0xFFFFFFFFu;
  unsigned long long mixed = high * low, squared = low * low + (mixed << 33);
  int shift = 0;
  if (!counts[0] || d < counts[1]) counts[1] = d;
  if (d > counts[2]) counts[2] = d;
  ++counts[0];
  counts[3] += d;
  counts[5] += high * high + (mixed >> 31) + (squared < mixed << 33);
  counts[4] += squared;
  counts[5] += counts[4] < squared;
  while (d >> shift >= 2 << BITS) ++shift;
  ++counts[HEAD_COUNTS + (shift << BITS) + (d >> shift)];
}

static void count_times(const tick *k, tick_log *g, const tick_times *when)
{
  long long slack = when->deadline + g->nominal - when->written;
  log_count(g->lateness, when->began - when->deadline);
  log_count(g->execution, when->written - when->began);
  if (g->marks[0] >= 0) log_count(g->period, when->began - g->marks[0]);
  g->marks[0] = when->began;
  if (slack < g->marks[1]) g->marks[1] = slack;
  g->marks[2] = 0;
  for (int i = 0; i < k->channels; ++i) log_count(g->ages + i * g->block, llrint(k->ages[i] * SECOND));
  log_count(g->read, when->read - when->began);
  log_count(g->law, when->decided - when->read);
  log_count(g->write, when->written - when->decided);
}

static double *put(double *place, const double *values, int count)
{
  memcpy(place, values, count * sizeof *values);
  return place + count;
}

/* Counts a tick and writes its row, without the columns of the simulated plant and of live gains. */
void log_tick(const tick *k, tick_log *g, const tick_times *when, double *row)
{
  double *state = g->numbers + 1, *command = state + g->state;
  g->numbers[0] = seconds(when->began);
  put(state, k->law.arguments[1], g->state);
  put(command, k->law.results[0], g->command);
  put(command + g->inputs, k->torques, k->m);
  for (int i = 0; i < g->disturbances && g->stage != g->task; ++i) command[g->disturbance + i] = NAN;
  g->values.arguments[0][0] = when->task_time;
  put(g->values.arguments[2], k->law.arguments[2], g->parameters); /* live gains may have changed them */
  g->values.function((const double **)g->values.arguments, g->values.results);
  for (int i = 0; i < g->sources; ++i) *row++ = g->numbers[g->source[i]];
  *row++ = seconds(when->elapsed);
  *row++ = when->task_time;
  *row++ = seconds(when->began - when->deadline);
  *row++ = 0.0; /* no period was skipped */
  *row++ = g->stage;
  *row++ = seconds(when->read - when->began);
  row = put(row, k->law.results[0], k->m);
  row = put(row, k->ages, k->channels);
  row = put(row, k->position, k->m);
  row = put(row, k->velocity, k->m);
  row = put(row, k->torque, k->m);
  row = put(row, k->carried, k->m);
  *row++ = k->sensing->residual;
  for (int i = 0; i < g->gauges; ++i) *row++ = k->gauges[g->gauge[i]];
  count_times(k, g, when);
}
