/* Torques that hold a machine at a pose, bring it to rest, or let a hand guide it: hil.safety.torques has the laws. Each
   is computed first, and remembered by its `keep` only when its torques are sent. */

/* A row of W times a vector. */
static double product(const double *W, int m, int i, const double *x)
{
  double sum = 0.0;
  for (int j = 0; j < m; ++j) sum += W[j * m + i] * x[j];
  return sum;
}

/* u and W of a state, into `held` and `inertia`; v 0: at rest. The same pose at rest is computed once. */
static int weigh(pose *p, const double *q, const double *v)
{
  double **in = p->hold.arguments;
  if (v || !p->at_rest || memcmp(in[1], q, p->n * sizeof *q)) {
    in[0][0] = p->t;
    copy(in[1], q, p->n);
    if (v) copy(in[2], v, p->n);
    else memset(in[2], 0, p->n * sizeof *q);
    evaluate(&p->hold);
    p->at_rest = !v;
  }
  copy(p->held, p->hold.results[0], p->m);
  copy(p->inertia, p->hold.results[2], p->m * p->m);
  if (all_finite(p->held, p->m)) return HELD;
  p->at_rest = 0;
  return NO_EQUATIONS;
}

/* u and W at the pose q. */
int pose_weigh(pose *p) { return weigh(p, p->q, 0); }

/* Adds the error of this tick to the integral, if its torque stays within bounds. */
static void learn(pose *p)
{
  int m = p->m, within = 1;
  for (int i = 0; i < m; ++i) {
    p->learned[i] = p->integral[i] + p->period * (p->anchor[i] + p->away[i] - p->y[i]);
    p->scratch[i] = p->integral_gain * p->learned[i];
  }
  for (int i = 0; i < m; ++i) within = within && fabs(product(p->inertia, m, i, p->scratch)) <= p->largest[i];
  if (!within) copy(p->learned, p->integral, m);
}

/* Torques that hold the pose, in `torques`, with a motion `away` from it that other torques cause on purpose; if it is not
   known, those that carry the machine. */
static int pose_stand(pose *p, int learns)
{
  int m = p->m;
  double *x = p->scratch;
  if (weigh(p, p->q, 0)) return NO_EQUATIONS;
  if (!p->known) {
    copy(p->torques, p->held, m);
    return HELD;
  }
  copy(p->learned, p->integral, m);
  if (learns) learn(p);
  for (int i = 0; i < m; ++i) x[i] = p->integral_gain * p->learned[i];
  for (int i = 0; i < m; ++i) p->next_bias[i] = product(p->inertia, m, i, x);
  for (int i = 0; i < m; ++i)
    x[i] = p->stiffness * (p->anchor[i] + p->away[i] - p->y[i]) - p->damping * (p->rates[i] - p->away_speed[i]);
  for (int i = 0; i < m; ++i) p->torques[i] = p->held[i] + p->next_bias[i] + product(p->inertia, m, i, x);
  return HELD;
}

static void pose_keep_stand(pose *p)
{
  if (!p->known) return;
  copy(p->integral, p->learned, p->m);
  copy(p->bias, p->next_bias, p->m);
  copy(p->at_release, p->held, p->m);
}

/* Torques in the hand of somebody, in `torques`; without a pose that was held, those that carry the machine. */
static int pose_guide(pose *p)
{
  int m = p->m, follows = p->known;
  double *x = p->scratch, *u = p->held, most = 1.0;
  if (weigh(p, p->q, 0)) return NO_EQUATIONS;
  copy(p->next_anchor, p->anchor, m);
  for (int i = 0; i < m; ++i) x[i] = p->anchor[i] - p->y[i];
  for (int i = 0; i < m; ++i) most = larger(most, fabs(p->spring * product(p->inertia, m, i, x)) / p->grip[i]);
  for (int i = 0; i < m && follows; ++i) {
    double y = p->y[i], rate = p->rates[i], stretch = x[i] / most;
    double inside = smaller(larger(y, p->lower[i]), p->upper[i]) - y;
    double walls = p->wall * inside - p->wall_damping * rate * (inside != 0.0);
    p->next_anchor[i] = y + stretch;
    x[i] = p->spring * stretch + walls - p->slowing * rate;
  }
  for (int i = 0; i < m; ++i) {
    double before = p->at_release[i], share = fabs(before) > p->weighs[i] ? u[i] / before : 0.0, limit = p->guide_limits[i];
    double more = p->bias[i] * smaller(larger(share, -1.0), 1.0); /* gravity now, as a share of that at the release */
    double torque = follows ? u[i] + more + product(p->inertia, m, i, x) : u[i];
    p->torques[i] = smaller(larger(torque, -limit), limit);
  }
  return HELD;
}

static void pose_keep_guide(pose *p) { copy(p->anchor, p->next_anchor, p->m); }

/* What cancels gravity and Coriolis forces, in `held`, and W; without a sound measurement, gravity at the last sound pose,
   and nothing if there was none. */
static int pose_balance(pose *p)
{
  if (p->sound) {
    for (int j = 0; j < p->n; ++j) p->back[j] = -p->v[j];
    if (weigh(p, p->q, p->back)) return NO_EQUATIONS;
    copy(p->scratch, p->held, p->m);
    if (weigh(p, p->q, p->v)) return NO_EQUATIONS;
    for (int i = 0; i < p->m; ++i) p->held[i] = (p->held[i] + p->scratch[i]) / 2.0; /* even in v: friction is odd */
    if (all_finite(p->inertia, p->m * p->m)) return HELD;
  }
  if (p->is_sound) return weigh(p, p->sound_pose, 0);
  memset(p->held, 0, p->m * sizeof *p->held);
  memset(p->inertia, 0, p->m * p->m * sizeof *p->held);
  return HELD;
}

/* Torque that brings a motor to rest from its last trusted rate, by the model alone. */
static double stop_blindly(pose *p, int i, double elapsed, const double *sent)
{
  double inertia = p->hold.results[2][i * p->m + i], held = p->held[i], most = p->blind_share * p->torque_limits[i];
  if (!(inertia > 0.0)) return held;
  p->next_blind[i] = p->blind_rate[i] + elapsed * (sent[i] - held) / inertia;
  return smaller(most, larger(-most, held - inertia * p->next_blind[i] / p->blind_time));
}

/* Torques that bring the machine to rest, in `torques`. A drive without a sound measurement gets the torque that holds the
   last sound pose; the others brake with the inertia that they see while it moves freely. `decay`: what the time `elapsed`
   since the last tick leaves of a speed; `sent`: the torques of that tick, `limited`: whether a limit has changed them. */
static int pose_stop(pose *p, double decay, double elapsed, const double *sent, int limited)
{
  int m = p->m, all = 1;
  double *x = p->scratch, s = p->stop_rate;
  if (pose_balance(p)) return NO_EQUATIONS;
  for (int i = 0; i < m; ++i) all = all && p->usable[i];
  if (!all) evaluate(&p->others);
  for (int i = 0; i < m; ++i) {
    double y = p->y[i], rate = p->rates[i], speed = p->path_speed[i];
    int anew = limited || !p->followed[i];
    p->next_path[i] = anew ? y : p->path[i] + speed * (1.0 - decay) / s;
    p->next_speed[i] = anew ? rate : speed * decay;
    x[i] = p->stiffness * (p->next_path[i] - y) + p->damping * (p->next_speed[i] - rate) - s * p->next_speed[i];
    if (!p->usable[i]) x[i] = 0.0;
  }
  copy(p->next_blind, p->blind_rate, m);
  for (int i = 0; i < m; ++i)
    p->torques[i] = p->blind[i] && p->driven[i] ? stop_blindly(p, i, elapsed, sent) : p->held[i] + product(p->inertia, m, i, x);
  return HELD;
}

static void pose_keep_stop(pose *p)
{
  copy(p->path, p->next_path, p->m);
  copy(p->path_speed, p->next_speed, p->m);
  copy(p->blind_rate, p->next_blind, p->m);
  memcpy(p->followed, p->usable, p->m * sizeof *p->followed);
}

/* Which joints stand. */

/* Looks at the speeds of a tick; returns whether every joint stands. Nothing is remembered before `ladder_keep`. */
int ladder_watch(ladder *l)
{
  int all = 1;
  l->next_fastest = l->fastest;
  for (int i = 0; i < l->m; ++i)
    if (l->sound[i]) l->next_fastest = larger(l->next_fastest, fabs(l->speeds[i]));
  for (int i = 0; i < l->m; ++i) {
    double below = larger(l->noise[i], smaller(l->slow[i], l->left * l->next_fastest));
    l->next_still[i] = l->sound[i] && fabs(l->speeds[i]) < below ? l->still[i] + 1 : 0;
    all = all && l->next_still[i] >= l->still_ticks;
  }
  return all;
}

/* Remembers the speeds of `ladder_watch`. */
void ladder_keep(ladder *l)
{
  l->fastest = l->next_fastest;
  for (int i = 0; i < l->m; ++i) l->still[i] = l->next_still[i];
}
