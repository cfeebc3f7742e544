/* Ticks of the test of the drives: hil.safety.proof. C sees whether the motion may show something; Python finds what. */

enum { POSITION_AT, SPEED_AT, HELD_AT, SENT_AT }; /* parts of a row of `history`, after the time since the tick before */

/* A part of the row of a tick, shape (m,). */
static double *past(const tick *k, long long number, int part)
{
  return k->history + number * (4 * k->m + 1) + 1 + part * k->m;
}

static double elapsed_of(const tick *k, long long number) { return k->history[number * (4 * k->m + 1)]; }

/* Whether an axis moves, and one way in the last ticks up to this one. */
static int one_way(const tick *k, int i, long long now, int ticks)
{
  double last = past(k, now, SPEED_AT)[i], step = k->speed_step[i], sign = last < 0.0 ? -1.0 : 1.0;
  if (!(fabs(last) > k->moving * step)) return 0;
  for (long long j = now - ticks; j <= now; ++j)
    if (!(past(k, j, SPEED_AT)[i] * sign >= -step)) return 0;
  return 1;
}

/* Change of the speed, impulse of the torques sent and mean of those that hold, over the last ticks. */
static void weigh_ticks(tick *k, int i, long long now, int ticks, int few)
{
  double impulse = 0.0, first = 0.0, last = 0.0, change = 0.0, held = 0.0;
  double before = past(k, now - ticks - 1, SENT_AT)[i], least = before, most = before;
  for (int j = 0; j <= ticks; ++j) {
    long long row = now - ticks + j;
    double sent = past(k, row - 1, SENT_AT)[i], speed = past(k, row, SPEED_AT)[i];
    if (j) {
      impulse += elapsed_of(k, row) * (sent + before) / 2.0;
      held += past(k, row, HELD_AT)[i] / ticks;
    }
    if (j < few) {
      first += impulse / few;
      change -= speed / few;
    }
    if (j > ticks - few) {
      last += impulse / few;
      change += speed / few;
    }
    least = smaller(least, sent);
    most = larger(most, sent);
    before = sent;
  }
  k->changes[i] = change;
  k->impulses[i] = last - first;
  k->means[i] = held;
  k->spreads[i] = most - least;
}

/* Whether the last ticks may show a drive that does not act as it should. */
static int may_be_driven(tick *k, long long now, int ticks)
{
  int m = k->m, few = ticks / 4 > 1 ? ticks / 4 : 1, any = 0;
  double time = 0.0, turned = 0.0;
  for (int i = 0; i < m; ++i) any = any || one_way(k, i, now, ticks);
  if (!any) return 0;
  for (int i = 0; i < m; ++i) {
    weigh_ticks(k, i, now, ticks, few);
    turned += fabs(k->displacements[i] - past(k, 0, POSITION_AT)[i]) * k->turns[i];
  }
  for (long long j = now - ticks + 1; j <= now; ++j) time += elapsed_of(k, j);
  time *= 1.0 - (few - 1.0) / ticks;
  for (int i = 0; i < m; ++i) {
    double rest = time * k->means[i], size = fabs(rest), turning = 0.0, own, doubt;
    if (!one_way(k, i, now, ticks)) continue;
    for (int j = 0; j < m; ++j) {
      double inertia = k->test_inertia[i * m + j] * k->changes[j], push = k->projector[i * m + j] * k->impulses[j];
      rest += inertia - push;
      size += fabs(inertia) + fabs(push);
      turning += fabs(inertia);
    }
    own = k->projector[i * m + i] * fabs(k->impulses[i]);
    doubt = k->certain * k->test_noise[i] / sqrt(few) + k->period * k->spreads[i] + 2.0 * turned * turning;
    /* rounding differs from that of Python: what is nearly too much is Python's too */
    if (k->rates[i] < 0.0) rest = -rest;
    if (!(rest + 1e-9 * (size + doubt + own) < doubt + k->unlike * own)) return 1;
  }
  return 0;
}

/* Adds this tick to the test, once it is kept; not 0 where Python has to judge it. */
static int prove(tick *k, double elapsed)
{
  int m = k->m, quarter = k->quarter;
  long long now = *k->samples, round = *k->round_tick;
  if (now >= k->room || round >= 4 * quarter + k->late || (round >= quarter && round % k->judged == 0))
    return give_back(k, 0);
  k->history[now * (4 * m + 1)] = elapsed;
  memcpy(past(k, now, POSITION_AT), k->displacements, m * sizeof *k->rates);
  memcpy(past(k, now, SPEED_AT), k->rates, m * sizeof *k->rates);
  memcpy(past(k, now, HELD_AT), k->hold.results[0], m * sizeof *k->rates);
  for (int i = 0; i < m; ++i)
    if (fabs(k->displacements[i] - past(k, 0, POSITION_AT)[i]) > k->most_travel[i]) return give_back(k, 0);
  for (int i = 0; i < 3; ++i) {
    int ticks = k->ticks[i < 2 ? i : 2 + (now + 1) % 4];
    if (now <= ticks) break;
    if (may_be_driven(k, now, ticks)) return give_back(k, 0);
  }
  return 0;
}

/* Sign of the torque of the test in this tick. */
static double test_sign(const tick *k)
{
  long long quarter = *k->round_tick / k->quarter;
  return *k->round_tick < 0 || quarter > 3 ? 0.0 : k->signs[quarter];
}

/* Remembers this tick. */
static void keep_test(tick *k)
{
  double sign = test_sign(k);
  memcpy(past(k, *k->samples, SENT_AT), k->torques, k->m * sizeof *k->torques);
  ++*k->samples;
  if (*k->round_tick < 0) return;
  ++*k->round_tick;
  for (int i = 0; i < k->m; ++i) {
    double speed = k->ahead_speed[i], acceleration = k->pushed[i] * sign;
    k->away[i] = k->ahead[i];
    k->away_speed[i] = speed;
    k->ahead[i] = k->ahead[i] + k->period * speed + k->half_square * acceleration;
    k->ahead_speed[i] = speed + k->period * acceleration;
  }
}
