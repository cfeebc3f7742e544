/* The test of the drives, tick by tick: whether a motor drives its axis while it moves, and the torques of a round. */

/* While an axis moves, a response below the first is that of a motor without torque, and above the second that of a torque
   that is too large. */
static const double TORQUELESS = 0.3, EXCESS = 1.6;

static const int SPANS[] = {2, 4, 8, 16, 32, 64}; /* ticks over which an axis is judged: the first two at every tick, */
enum { EACH = 2, IN_TURN = 4 };                   /* the others in turn, one at each tick: a tick has little time */

/* Time by which a drive makes its torque, and measures its speed, late [s]: while a torque changes, what acts of the one
   before looks like too much. A motor that is reversed is named at once, too much torque only beyond this. */
static const double LAG = 0.002;

static const double MOVING = 3.0;   /* an axis moves from here on [steps of the measured speed] */
static const double MOST_REVERSED = 2.0; /* largest response of the wrong polarity: what is more has another cause */
static const double BLAMED = 0.8;    /* share of the squares of what is not explained that one drive must explain */
static const double BEFORE_OTHERS = 1.5;    /* how much more it must explain than any other where motors act together */

enum { POWERED = 8 };                /* ticks over which the power of what is not explained is judged */

static const double SIGNS[] = {1.0, -1.0, -1.0, 1.0}; /* of the torque in each quarter of a round */

enum { POSITION_AT, SPEED_AT, HELD_AT, SENT_AT, MEASURED_AT }; /* parts of a row, after the time since the tick before */

/* A part of the row of a tick, shape (m,). */
static double *past(const proof *p, long long number, int part) { return p->rows + number * (5 * p->m + 1) + 1 + part * p->m; }

static double elapsed_of(const proof *p, long long number) { return p->rows[number * (5 * p->m + 1)]; }

static const double NOISY = 1.5; /* positions that differ by so many times their rounding are noisy */

/* Finds how noisy speeds are that follow from positions. Third differences of positions show their noise and hardly the
   motion: they have 20 times its variance, which is a twelfth of the square of a step where positions are only rounded. */
static void measure_noise(proof *p, long long now)
{
  int m = p->m;
  for (int i = 0; i < m && now > 2; ++i) {
    double rough = past(p, now, POSITION_AT)[i] - past(p, now - 3, POSITION_AT)[i], coarse;
    rough -= 3.0 * (past(p, now - 1, POSITION_AT)[i] - past(p, now - 2, POSITION_AT)[i]);
    p->rough[i] += rough * rough;
    coarse = sqrt(12.0 / 20.0 * p->rough[i] / (now - 2)) / p->position_step[i];
    p->speed_step[i] = p->least_step[i] * (coarse > NOISY ? coarse : 1.0);
  }
  for (int i = 0; i < m; ++i) {
    double squares = 0.0;
    for (int j = 0; j < m; ++j) {
      double step = p->inertia[i * m + j] * p->speed_step[j];
      squares += step * step;
    }
    p->noise[i] = sqrt(squares / 6.0);
  }
}

/* Writes the samples of a tick, and the torques that hold its pose, into the row of that number; returns whether they are
   numbers. Speeds are those at one instant, that of the oldest sample: between axes that push each other, a speed that is
   older by a period looks like a torque. */
int proof_add(proof *p, long long now, double elapsed, const double *positions, const double *speeds, const double *ages,
              const double *held)
{
  double oldest = 0.0;
  p->rows[now * (5 * p->m + 1)] = elapsed;
  copy(past(p, now, POSITION_AT), positions, p->m);
  copy(past(p, now, MEASURED_AT), speeds, p->m);
  copy(past(p, now, HELD_AT), held, p->m);
  for (int i = 0; i < p->m; ++i) oldest = larger(oldest, ages[i]);
  for (int i = 0; i < p->m; ++i) {
    double before = now ? past(p, now - 1, MEASURED_AT)[i] : speeds[i];
    double share = (oldest - ages[i]) / elapsed; /* not a number where there is no sample */
    past(p, now, SPEED_AT)[i] = speeds[i] + (share < 1.0 ? share : 1.0) * (before - speeds[i]);
  }
  if (all_finite(positions, p->m) && all_finite(speeds, p->m)) {
    measure_noise(p, now);
    return 1;
  }
  copy(past(p, now, SPEED_AT), past(p, now - 1, SPEED_AT), p->m);
  copy(past(p, now, MEASURED_AT), past(p, now - 1, MEASURED_AT), p->m);
  return 0;
}

static int moves(const proof *p, int i, long long now) { return fabs(past(p, now, SPEED_AT)[i]) > MOVING * p->speed_step[i]; }

/* Whether an axis moves, and one way in the last ticks: friction that has changed its sign drives nothing. */
static int one_way(const proof *p, int i, long long now, int ticks)
{
  double sign = past(p, now, SPEED_AT)[i] < 0.0 ? -1.0 : 1.0;
  if (!moves(p, i, now)) return 0;
  for (long long j = now - ticks; j <= now; ++j)
    if (!(past(p, j, SPEED_AT)[i] * sign >= -p->speed_step[i])) return 0;
  return 1;
}

/* The torque sent in a tick; that of the first before it. */
static double sent_in(const proof *p, int i, long long row) { return past(p, row > 0 ? row : 0, SENT_AT)[i]; }

/* Change of the speed, impulse of the torques sent and mean of those that hold over the last ticks, and spread of those sent
   whose motion may show in them; changes are those of means of `few` samples at both ends: coarse speeds are noisy. Torques
   act so many ticks `late`. */
static void sum_ticks(proof *p, int i, long long now, int ticks, int few, int late)
{
  double impulse = 0.0, first = 0.0, last = 0.0, slow = 0.0, fast = 0.0, held = 0.0;
  double before = sent_in(p, i, now - ticks - 1 - late), least = before, most = before;
  for (int j = 0; j <= ticks; ++j) {
    long long row = now - ticks + j;
    double sent = sent_in(p, i, row - 1 - late), speed = past(p, row, SPEED_AT)[i];
    if (j) {
      impulse += elapsed_of(p, row) * (sent + before) / 2.0;
      held += past(p, row, HELD_AT)[i];
    }
    if (j < few) {
      first += impulse;
      slow += speed;
    }
    if (j > ticks - few) {
      last += impulse;
      fast += speed;
    }
    before = sent;
  }
  for (long long row = now - ticks - p->late > 0 ? now - ticks - p->late : 0; row < now; ++row) {
    least = smaller(least, past(p, row, SENT_AT)[i]);
    most = larger(most, past(p, row, SENT_AT)[i]);
  }
  p->changes[i] = fast / few - slow / few;
  p->impulses[i] = last / few - first / few;
  p->means[i] = held / ticks;
  p->spreads[i] = most - least;
}

static double ratio(double a, double b) { return b > 0.0 ? a / b : 0.0; }

static double sign_of(double x) { return (x > 0.0) - (x < 0.0); }

/* The torque that acts as a share of that sent in the last ticks, its doubt, and which axes the rest drives. */
static void find_shares(proof *p, long long now, int ticks, int late)
{
  int m = p->m, few = ticks / 4 > 1 ? ticks / 4 : 1;
  double time = 0.0, turned = 0.0, squares = 0.0, first = 0.0, second = 0.0;
  for (int i = 0; i < m; ++i) sum_ticks(p, i, now, ticks, few, late);
  for (long long j = now - ticks + 1; j <= now; ++j) time += elapsed_of(p, j);
  time *= 1.0 - (few - 1.0) / ticks;
  /* W is that of the first pose; a turn changes it by about its angle */
  for (int i = 0; i < m; ++i) turned += fabs(past(p, now, POSITION_AT)[i] - past(p, 0, POSITION_AT)[i]) * p->turns[i];
  for (int i = 0; i < m; ++i) {
    double acting = 0.0, pushed = 0.0, turning = 0.0, speed = past(p, now, SPEED_AT)[i], own = p->projector[i * m + i], rest, size;
    for (int j = 0; j < m; ++j) {
      acting += p->inertia[i * m + j] * p->changes[j];
      pushed += p->projector[i * m + j] * p->impulses[j];
      turning += fabs(p->inertia[i * m + j]) * fabs(p->changes[j]);
    }
    rest = acting + time * p->means[i] - pushed;
    size = own * fabs(p->impulses[i]);
    p->power[i] = rest * speed;
    p->driven[i] = p->power[i] > 0.0 && moves(p, i, now) && p->impulses[i] != 0.0;
    p->explained[i] = ratio(rest * rest, own);
    p->share[i] = 1.0 + ratio(rest * sign_of(p->impulses[i]), size);
    p->doubt[i] = ratio(p->certain * p->noise[i] / sqrt(few) + p->lag * p->spreads[i] + 2.0 * turned * turning, size);
    p->late_doubt[i] = p->doubt[i] + ratio(LAG * p->spreads[i], size);
    if (moves(p, i, now)) squares += rest * rest;
    if (p->explained[i] > first) {
      second = first;
      first = p->explained[i];
    } else second = larger(second, p->explained[i]);
  }
  /* one drive alone is blamed: an error of the model shows on several axes, and a closed brake on its own */
  for (int i = 0; i < m; ++i)
    p->driven[i] = p->driven[i] && p->explained[i] > BLAMED * squares && (!p->together || p->explained[i] > BEFORE_OTHERS * second);
}

static int shows(proof *p, int what, int drive)
{
  p->shows = what;
  p->drive = drive;
  p->response = p->share[drive];
  return what;
}

/* Whether a drive looks reversed however late its torque acts: while a round turns its torque round, one that acts late does. */
static int reversed_if_late(proof *p, long long now, int ticks, int drive)
{
  int shows = 1;
  for (int late = 1; late <= p->slow && shows && p->round_tick >= 0; ++late) {
    find_shares(p, now, ticks, late);
    shows = p->driven[drive] && p->share[drive] + p->doubt[drive] < p->reversed;
  }
  find_shares(p, now, ticks, 0);
  return shows;
}

/* A motor that drives its axis the wrong way or too strongly, or makes no torque, while the axis moves. No load makes a
   machine fall faster than without torque, so an axis that does is driven by its own motor. */
static int find_driven(proof *p, long long now)
{
  for (int span = 0; span <= EACH; ++span) {
    int ticks = SPANS[span < EACH ? span : EACH + (now + 1) % IN_TURN], any = 0, least = 0, most = 0;
    double lowest = INFINITY, highest = -INFINITY;
    if (now <= ticks) return 0;
    for (int i = 0; i < p->m; ++i) any = any || one_way(p, i, now, ticks);
    if (!any) continue;
    find_shares(p, now, ticks, 0);
    for (int i = 0; i < p->m; ++i) {
      int driven = p->driven[i] && one_way(p, i, now, ticks);
      double low = driven ? p->share[i] + p->doubt[i] : 1.0, high = driven ? p->share[i] - p->late_doubt[i] : 1.0;
      if (low < lowest) least = i;
      if (high > highest) most = i;
      lowest = smaller(lowest, low);
      highest = larger(highest, high);
    }
    if (p->share[least] > -MOST_REVERSED && lowest < p->reversed && reversed_if_late(p, now, ticks, least))
      return shows(p, SHOWS_REVERSED, least);
    if (highest > EXCESS) return shows(p, SHOWS_EXCESS, most);
    if (ticks > SPANS[0] && p->loaded[least] && lowest < TORQUELESS) return shows(p, SHOWS_NOTHING, least);
  }
  return 0;
}

static const double OPPOSITE = 0.25; /* a response that differs from -1 by less is that of the wrong polarity */
enum { SLOW = 256 };                 /* largest number of ticks over which it is found in a slow motion */

/* Whether the wrong polarity of a drive alone explains a motion too slow for `find_driven`, by the mean speeds of many ticks. A
   hand or a load that pushes its axis with twice its torque looks the same. */
static int opposed_slowly(proof *p, long long now, int drive)
{
  int ticks = now - 1 < SLOW ? (int)now - 1 : SLOW;
  if (ticks < SPANS[0]) return 0;
  find_shares(p, now, ticks, 0);
  for (int i = 0; i < p->m; ++i)
    if (i != drive && p->explained[drive] < BEFORE_OTHERS * p->explained[i]) return 0;
  return fabs(p->share[drive] + 1.0) < OPPOSITE && p->doubt[drive] < OPPOSITE;
}

/* An axis that has left the pose by more than the test explains. Axes push each other: the one that is named, and leaves the
   loop, is the one that gets most power from what is not explained. A light wrist moves farther than the arm that falls. */
static int find_moved(proof *p, long long now)
{
  int worst = 0, named, judged = now > POWERED;
  double most = -INFINITY;
  for (int i = 0; i < p->m; ++i) {
    p->travel[i] = past(p, now, POSITION_AT)[i] - past(p, 0, POSITION_AT)[i];
    if (fabs(p->travel[i]) / p->most_travel[i] > most) worst = i;
    most = larger(most, fabs(p->travel[i]) / p->most_travel[i]);
  }
  if (!(most > 1.0)) return 0;
  p->moved = named = worst;
  if (judged) find_shares(p, now, POWERED, 0);
  for (int i = 0; i < p->m && judged; ++i)
    if (p->power[i] > larger(0.0, p->power[named])) named = i;
  if (opposed_slowly(p, now, named)) return shows(p, SHOWS_OPPOSED, named);
  if (judged) find_shares(p, now, POWERED, 0); /* again, of the last ticks alone */
  return shows(p, SHOWS_MOTION, named);
}

/* Whether the present round contradicts the model, as Python finds it. */
static int round_contradicts(proof *p, long long now)
{
  long long samples = p->samples;
  int contradicts;
  p->samples = now + 1;
  contradicts = *evaluate(&p->round) != 0.0;
  p->samples = samples;
  return contradicts;
}

/* Judges the ticks up to this one: what they show of a drive; SHOWS_ROUND: the present round is over, or shows it. Up to its
   middle a torque hardly differs from the constant and linear parts that the model may lack, and friction that gives way
   looks like one that acts the wrong way. */
int proof_judge(proof *p, long long now)
{
  int over = p->round_tick >= 4 * p->quarter + p->late, half = p->round_tick >= 2 * p->quarter;
  p->shows = 0;
  if (find_driven(p, now) || find_moved(p, now)) return p->shows;
  if (p->round_tick < 0) return 0;
  return over || (half && p->round_tick % p->judged == 0 && round_contradicts(p, now)) ? SHOWS_ROUND : 0;
}

/* The torques of the test in this tick, in `torques`; `ahead` has the motion that they have caused by the model. */
static void proof_torques(proof *p)
{
  int quarter = p->round_tick / p->quarter;
  double sign = p->round_tick < 0 || quarter > 3 ? 0.0 : SIGNS[quarter];
  for (int i = 0; i < p->m; ++i) p->torques[i] = p->test[i] * sign;
  for (int i = 0; i < p->m; ++i) p->accelerations[i] = p->pushed[i] * sign;
}

/* The torques of the test are sent. */
static void proof_keep(proof *p)
{
  double h = p->period, half_square = h * h / 2.0;
  if (p->round_tick < 0) return;
  ++p->round_tick;
  for (int i = 0; i < p->m; ++i) {
    double speed = p->ahead_speed[i];
    p->away[i] = p->ahead[i];
    p->away_speed[i] = speed;
    p->ahead[i] = p->ahead[i] + h * speed + half_square * p->accelerations[i];
    p->ahead_speed[i] = speed + h * p->accelerations[i];
  }
}

/* Remembers what the last tick that was added sends. */
static void proof_sent(proof *p, const double *torques) { copy(past(p, p->samples - 1, SENT_AT), torques, p->m); }
