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

/* Replaces the law's torques in `wanted`; not 0 where the stage ends, or the model holds no pose. */
static int blend(tick *k)
{
  double since = seconds(*k->began - k->entered), share = 0.0;
  if (since >= k->end) return give_back(k, 0);
  if (k->source == 3) return guide(k);
  if (k->source == 2) share = smaller(1.0, since / k->ramp_time);
  if (share == 1.0 && !k->stays) return give_back(k, 0);
  if (stand(k)) return GIVEN_BACK;
  for (int i = 0; i < k->m; ++i)
    k->wanted[i] = k->source == 2 ? (1.0 - share) * k->held[i] + share * k->wanted[i] : 0.0 + k->held[i] + 0.0;
  return 0;
}
