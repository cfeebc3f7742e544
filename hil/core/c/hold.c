/* Torques that hold a pose, and the way from them to those of the law: hil.safety.pose_hold and hil.safety.stages. */

/* A row of W times a vector. */
static double product(const double *W, int m, int i, const double *x)
{
  double sum = 0.0;
  for (int j = 0; j < m; ++j) sum += W[j * m + i] * x[j];
  return sum;
}

/* Adds the error of this tick to the integral, if its torque stays within bounds. */
static void learn(tick *k, const double *W)
{
  int m = k->m, within = 1;
  double *x = k->scaled;
  for (int i = 0; i < m; ++i) {
    k->learned[i] = k->integral[i] + k->period * (k->aim[i] - k->displacements[i]);
    x[i] = k->integral_gain * k->learned[i];
  }
  for (int i = 0; i < m; ++i) within = within && fabs(product(W, m, i, x)) <= k->most_bias[i];
  if (!within) memcpy(k->learned, k->integral, m * sizeof *x);
}

/* Computes u and W of this pose; not 0 where the model gives none. */
static int weigh(tick *k)
{
  int m = k->m;
  double **in = k->hold.arguments;
  in[0][0] = 0.0;
  memcpy(in[1], k->law_q, k->n * sizeof *in[1]); /* in[2], the velocity, stays 0 */
  k->hold.function((const double **)in, k->hold.results);
  if (all_finite(k->hold.results[0], m) && all_finite(k->hold.results[2], m * m)) return 0;
  return give_back(k, "a pose that the model cannot hold");
}

/* Torques that hold the pose, in `held`; not 0 where the model gives none. */
static int stand(tick *k)
{
  int m = k->m;
  double *x = k->scaled;
  const double *u = k->hold.results[0], *W = k->hold.results[2];
  for (int i = 0; i < m; ++i) k->held[i] = 0.0;
  if (!k->stands) return 0;
  if (weigh(k)) return GIVEN_BACK;
  memcpy(k->learned, k->integral, m * sizeof *x);
  if (k->learns) learn(k, W);
  for (int i = 0; i < m; ++i) x[i] = k->integral_gain * k->learned[i];
  for (int i = 0; i < m; ++i) k->held[i] = u[i] + product(W, m, i, x);
  for (int i = 0; i < m; ++i)
    x[i] = k->stiffness * (k->aim[i] - k->displacements[i]) - k->damping * (k->rates[i] - k->aim_speed[i]);
  for (int i = 0; i < m; ++i) k->held[i] = k->held[i] + product(W, m, i, x);
  return 0;
}

/* Torques in the hand of somebody, in `wanted`; not 0 where the model holds no pose. */
static int guide(tick *k)
{
  int m = k->m;
  double *x = k->scaled, most = 1.0;
  const double *u = k->hold.results[0], *W = k->hold.results[2];
  if (weigh(k)) return GIVEN_BACK;
  for (int i = 0; i < m; ++i) x[i] = k->anchor[i] - k->displacements[i];
  for (int i = 0; i < m; ++i) most = larger(most, fabs(k->spring * product(W, m, i, x)) / k->grip[i]);
  for (int i = 0; i < m; ++i) {
    double y = k->displacements[i], rate = k->rates[i], stretch = x[i] / most;
    double inside = smaller(larger(y, k->wall_lower[i]), k->wall_upper[i]) - y;
    double walls = k->wall * inside - k->wall_damping * rate * (inside != 0.0);
    k->learned[i] = y + stretch;
    x[i] = k->spring * stretch + walls - k->slowing * rate;
  }
  for (int i = 0; i < m; ++i) {
    double before = k->at_release[i], share = fabs(before) > k->weighs[i] ? u[i] / before : 0.0, most = k->guide_limits[i];
    double torque = u[i] + k->bias[i] * smaller(larger(share, -1.0), 1.0) + product(W, m, i, x);
    k->wanted[i] = smaller(larger(torque, -most), most);
  }
  return 0;
}

/* Whether every joint stands, with what the next tick has to know: hil.safety.ladder. */
static int standing(tick *k)
{
  double fastest = *k->fastest;
  int all = 1;
  for (int i = 0; i < k->m; ++i) fastest = larger(fastest, fabs(k->rates[i]));
  k->next_fastest = fastest;
  for (int i = 0; i < k->m; ++i) {
    double below = larger(k->drive[i].noise, smaller(k->drive[i].slow, k->still_left * fastest));
    k->next_still[i] = fabs(k->rates[i]) < below ? k->still[i] + 1 : 0;
    all = all && k->next_still[i] >= k->still_ticks;
  }
  return all;
}

/* Torques that bring the machine to rest, in `wanted`, and those that hold it, in `held`; not 0 where the stop ends, or
   the model holds no pose. */
static int stop(tick *k)
{
  int m = k->m, begins = 0, failed;
  double **in = k->hold.arguments, *x = k->scaled, s = k->stop_rate, decay = k->stop_decay;
  const double *u = k->hold.results[0], *W = k->hold.results[2];
  if (standing(k)) return give_back(k, 0);
  for (int j = 0; j < k->n; ++j) in[2][j] = -k->law_v[j];
  failed = weigh(k);
  memcpy(k->held, u, m * sizeof *x);
  memcpy(in[2], k->law_v, k->n * sizeof *x);
  failed = weigh(k) || failed;
  memset(in[2], 0, k->n * sizeof *x);
  if (failed) return GIVEN_BACK;
  for (int i = 0; i < m; ++i) begins = begins || k->clamped[i];
  for (int i = 0; i < m; ++i) {
    double y = k->displacements[i], rate = k->rates[i], speed = k->path_speed[i];
    int anew = begins || !k->followed[i];
    k->held[i] = (u[i] + k->held[i]) / 2.0; /* the part that is even in the velocity */
    k->next_path[i] = anew ? y : k->path[i] + speed * (1.0 - decay) / s;
    k->next_speed[i] = anew ? rate : speed * decay;
    x[i] = k->stiffness * (k->next_path[i] - y) + k->damping * (k->next_speed[i] - rate) - s * k->next_speed[i];
  }
  for (int i = 0; i < m; ++i) k->wanted[i] = k->held[i] + product(W, m, i, x);
  return 0;
}

/* Remembers a tick of the stop. */
static void keep_stop(tick *k)
{
  size_t size = k->m * sizeof *k->path;
  memcpy(k->path, k->next_path, size);
  memcpy(k->path_speed, k->next_speed, size);
  *k->fastest = k->next_fastest;
  for (int i = 0; i < k->m; ++i) {
    k->still[i] = k->next_still[i];
    k->loop_speed[i] = fabs(k->rates[i]);
    k->followed[i] = 1;
  }
}

/* Scales what brakes the machine as a whole, then the change of the torques: hil.safety.limits. */
static void together(tick *k, double step)
{
  double share = 1.0, change = 1.0;
  for (int i = 0; i < k->m; ++i) {
    double hold = k->held[i], brake = k->wanted[i] - hold, most = k->drive[i].torque_limit;
    double room = most - copysign(hold, hold * brake);
    if (fabs(brake) > room && room > k->stop_room * most) share = smaller(share, room / fabs(brake));
  }
  for (int i = 0; i < k->m; ++i) {
    double hold = k->held[i], most = k->drive[i].torque_limit, rate = k->drive[i].torque_rate_limit * step;
    double goal = smaller(larger(hold + share * (k->wanted[i] - hold), -most), most), away = fabs(goal - k->previous[i]);
    if (away > rate) change = smaller(change, rate / away);
    k->goals[i] = goal;
  }
  for (int i = 0; i < k->m; ++i)
    k->limited[i] = share == 1.0 && change == 1.0 ? k->wanted[i] : k->previous[i] + change * (k->goals[i] - k->previous[i]);
}

/* Replaces the law's torques in `wanted`; not 0 where the stage ends, or the model holds no pose. */
static int blend(tick *k, double elapsed)
{
  double since = seconds(*k->began - k->entered), share = 0.0;
  if (since >= k->end) return give_back(k, 0);
  if (k->source == GUIDE) return guide(k);
  if (k->source == STOP) return stop(k);
  if (k->source == BLEND) share = smaller(1.0, since / k->ramp_time);
  if (share == 1.0 && !k->stays) return give_back(k, 0);
  if (k->tests && *k->round_tick >= 0)
    for (int i = 0; i < k->m; ++i) {
      k->aim[i] = k->anchor[i] + k->ahead[i];
      k->aim_speed[i] = k->ahead_speed[i];
    }
  if (stand(k) || (k->tests && prove(k, elapsed))) return GIVEN_BACK;
  for (int i = 0; i < k->m; ++i) {
    double more = k->tests ? k->test[i] * test_sign(k) : 0.0;
    k->wanted[i] = k->source == BLEND ? (1.0 - share) * k->held[i] + share * k->wanted[i] : 0.0 + k->held[i] + more;
  }
  return 0;
}
