/* The steps of a tick. */

/* The reading of a tick: the state of the machine from the frames. */

/* Number of a bus on which a sample of this tick is missing; -1: none is. */
int tick_missing(const tick *k)
{
  for (int i = 0; i < k->channels; ++i) {
    const tick_channel *each = &k->channel[i];
    if (each->awaited && k->sample_time[i] < (each->synced ? k->began : k->written)) return each->bus;
  }
  return -1;
}

/* Buses, as bits, with a drive that a command of torque enables, and on which no drive has answered since the last
   commands: when all of them restart, nothing has acknowledged the frames in the controller's queue, and these would be
   the first to come. */
unsigned long long tick_mute(const tick *k)
{
  unsigned long long waits = 0, heard = 0;
  for (int i = 0; i < k->m; ++i) {
    unsigned long long bus = 1ull << k->channel[i].bus;
    if (k->sample_time[i] == NEVER || k->sample_time[i] >= k->written) heard |= bus;
    else if (k->channel[i].mutes) waits |= bus;
  }
  return waits & ~heard;
}

/* Whether Python reacts to the reading: to a verdict, a state that is not known, a mute bus, or an exception. */
int tick_asks(const tick *k) { return k->sensing->verdicts || !k->sensing->valid || k->mute || *k->failed; }

/* Computes the state of the machine; returns whether Python reacts to it. */
int tick_sense(tick *k, long long now)
{
  k->mute = tick_mute(k);
  for (int i = 0; i < k->m; ++i) k->silences[i] = k->alive[i] ? seconds(now - k->alive[i]) : 0.0;
  sense_read(k->sensing, seconds(now), now, k->due, k->free, k->began, k->written);
  return tick_asks(k);
}

/* Encodes the torques of the drives, whoever has decided them; nothing has changed if one cannot be sent. */
int tick_act(tick *k)
{
  for (int i = 0; i < k->m; ++i) {
    double torque = k->source->torques[i], most = k->source->pose->torque_limits[i];
    if (!(-most <= torque && torque <= most)) return give_back(k, "a torque above its limit");
    k->raw[i] = tick_encode(&k->encoding[i], torque);
    if (!is_finite(k->raw[i])) return give_back(k, "a torque that no frame carries");
  }
  copy(k->carried, k->raw, k->m);
  return 0;
}

/* Adds this tick to the test of the drives, once it is kept; not 0 where Python has to judge it. */
static int prove(tick *k, double elapsed)
{
  proof *p = k->source->proof;
  pose *at = k->source->pose;
  if (p->samples == p->room || pose_weigh(at)) return give_back(k, 0);
  proof_add(p, p->samples, elapsed, at->y, at->rates, k->sensing->ages, at->held);
  return proof_judge(p, p->samples) ? give_back(k, 0) : 0;
}

/* Torques of the present source, in its `wanted`; not 0 where the stage ends, or there are none. */
static int find_torques(tick *k, double elapsed)
{
  torque_source *s = k->source;
  pose *p = s->pose;
  double since = seconds(k->began - k->entered);
  copy(s->wanted, k->law.results[0], k->m);
  if (s->kind == LAW) return 0;
  if (since >= k->end) return give_back(k, 0);
  copy(p->q, k->sensing->law_q, k->n);
  copy(p->v, k->sensing->law_v, k->n);
  copy(p->y, k->sensing->displacements, k->m);
  copy(p->rates, k->sensing->speeds, k->m);
  copy(k->ladder->speeds, k->sensing->speeds, k->m);
  p->known = p->sound = 1;
  for (int i = 0; i < k->m; ++i) k->ladder->sound[i] = p->usable[i] = p->driven[i] = 1;
  if (s->kind == STOP && ladder_watch(k->ladder)) return give_back(k, 0);
  if (s->tests && prove(k, elapsed)) return GIVEN_BACK;
  return torques_find(s, since, elapsed, p->stop_decay) ? give_back(k, "a pose that the model cannot hold") : 0;
}

/* Remembers what this tick sends. */
static void keep_torques(tick *k, long long now)
{
  torque_source *s = k->source;
  if (s->tests) ++s->proof->samples;
  torques_keep(s, now);
  if (s->kind == STOP) ladder_keep(k->ladder);
  copy(s->pose->sound_pose, k->sensing->law_q, k->n);
  copy(s->pose->sound_rates, k->sensing->speeds, k->m);
  s->pose->is_sound = 1;
}

/* What the law remembers from tick to tick, whoever decides them. */

/* Integrates the law's own memory over the time that has really passed, with the rate of the last command; a memory that
   changes once per period does so, however much time has passed. */
void memory_integrate(law_memory *l, double elapsed)
{
  double time = l->period == l->period ? l->period : elapsed;
  for (int i = 0; i < l->own; ++i) l->values[i] += time * l->rate[i];
}

/* Takes the commands under way, and an estimator, to the next tick; `sent`: what the drives got, as asked, not as rounded.
   Where torques do not move the machine, both start again. */
void memory_take(law_memory *l, const double *sent, int moves)
{
  int own = l->own, further = l->count - own;
  if (!further) return;
  if (moves && all_finite(l->rate + own, further))
    for (int i = own; i < l->count; ++i) l->values[i] += l->period * l->rate[i];
  else copy(l->values + own, l->start + own, further);
  copy(l->values + l->sent_at, sent, l->inputs);
}

/* The law and the limits: hil.safety.stages in the task. The state changes only where nothing can fail any more. */
int tick_decide(tick *k, long long now, double elapsed, double task_time)
{
  int n = k->n, m = k->m;
  torque_source *s = k->source;
  double waited = seconds(now - k->sensing->read);
  double *row = k->law.results[0], *x = k->law.arguments[1];
  for (int i = 0; i < k->rules; ++i) {
    const tick_rule *each = &k->rule[i];
    double value = *each->value + (each->waits ? waited : 0.0);
    if (value < each->lower || value > each->upper) return give_back(k, each->broken);
  }
  k->law.arguments[0][0] = task_time;
  copy(x, k->sensing->law_q, n);
  copy(x + n, k->sensing->law_v, n);
  copy(x + 2 * n, k->memory->values, k->memory->count);
  if (k->estimates) x[2 * n + k->elapsed_at] = elapsed;
  evaluate(&k->law);
  if (!(row[k->status_start] >= 0.0 && row[k->status_start] < 64.0)) return give_back(k, "the law's status");
  if ((s->kind == LAW || s->kind == BLEND) && k->stops >> (int)row[k->status_start] & 1)
    return give_back(k, "the law's status");
  if (find_torques(k, elapsed)) return GIVEN_BACK;
  if (!all_finite(s->wanted, m)) return give_back(k, "a torque that is not finite");
  torques_limit(s, now);
  if (tick_act(k)) return GIVEN_BACK;
  keep_torques(k, now);
  if (s->kind == LAW) memory_integrate(k->memory, elapsed);
  memory_take(k->memory, s->torques, k->moves);
  return 0;
}

/* The row of a tick, and the durations of its parts. */

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

/* Counts the durations of a tick's parts, ages of the samples that have come, and periods skipped before the tick. */
void log_times(const tick *k, tick_log *g, const tick_times *when)
{
  long long slack = when->deadline + g->nominal - when->written;
  log_count(g->lateness, when->began - when->deadline);
  log_count(g->execution, when->written - when->began);
  if (g->marks[0] >= 0) log_count(g->period, when->began - g->marks[0]);
  g->marks[0] = when->began;
  if (slack < g->marks[1]) g->marks[1] = slack;
  g->marks[2] = when->skipped ? g->marks[2] + 1 : 0;
  if (g->marks[2] > g->marks[3]) g->marks[3] = g->marks[2];
  g->marks[4] += when->skipped > 0;
  g->marks[5] += when->skipped;
  for (int i = 0; i < k->channels && !g->let_go; ++i)
    if (is_finite(k->sensing->ages[i])) log_count(g->ages + i * g->block, llrint(k->sensing->ages[i] * SECOND));
  log_count(g->read, when->read - when->began);
  log_count(g->law, when->decided - when->read);
  log_count(g->write, when->written - when->decided);
}

/* Counts a tick and writes its row, without the columns of the simulated plant and of live gains. */
void log_tick(const tick *k, tick_log *g, const tick_times *when, double *row)
{
  double *state = g->numbers + 1, *command = state + g->state;
  g->numbers[0] = seconds(when->began);
  copy(state, k->law.arguments[1], g->state);
  copy(command, k->law.results[0], g->command);
  copy(command + g->inputs, k->source->torques, k->m);
  for (int i = 0; i < g->disturbances && g->stage != g->task; ++i) command[g->disturbance + i] = NAN;
  g->values.arguments[0][0] = when->task_time;
  copy(g->values.arguments[2], k->law.arguments[2], g->parameters); /* live gains may have changed them */
  evaluate(&g->values);
  g->times[0] = seconds(when->elapsed);
  g->times[1] = when->task_time;
  g->times[2] = seconds(when->began - when->deadline);
  g->times[3] = when->skipped;
  g->times[4] = g->stage;
  g->times[5] = seconds(when->read - when->began);
  for (int i = 0; i < g->copied; ++i) row[i] = *g->column[i];
  if (when->counts) log_times(k, g, when);
}
