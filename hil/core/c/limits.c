/* The last limits before a torque is sent: its size and its rate. */

/* A drive whose holding torque leaves less room does not keep the others from braking [share of its limit]. */
static const double ROOM = 0.1;

/* Scales what brakes the machine as a whole, then the change of the torques: axis by axis, a joint would speed up while
   its neighbour brakes. */
static void scale_together(limits *l, const double *held, double elapsed)
{
  double share = 1.0, change = 1.0;
  for (int i = 0; i < l->m; ++i) {
    double brake = l->wanted[i] - held[i], most = l->largest[i], room = most - copysign(held[i], held[i] * brake);
    if (fabs(brake) > room && room > ROOM * most) share = smaller(share, room / fabs(brake));
  }
  for (int i = 0; i < l->m; ++i) {
    double goal = held[i] + share * (l->wanted[i] - held[i]), step = l->steepest[i] * elapsed, away;
    l->goals[i] = goal = smaller(larger(goal, -l->largest[i]), l->largest[i]);
    away = fabs(goal - l->previous[i]);
    if (away > step) change = smaller(change, step / away);
  }
  if (share == 1.0 && change == 1.0) return;
  for (int i = 0; i < l->m; ++i) l->allowed[i] = l->previous[i] + change * (l->goals[i] - l->previous[i]);
}

/* The torques in `allowed`, finite and within the limits, from those in `wanted`. `held`: the part of them that holds a
   machine that comes to rest; 0: no machine does. Nothing is remembered before `limits_keep`. */
void limits_apply(limits *l, long long now, const double *held)
{
  double elapsed = l->timed ? smaller(seconds(now - l->last), l->period) : l->period;
  copy(l->allowed, l->wanted, l->m);
  if (held) scale_together(l, held, elapsed);
  for (int i = 0; i < l->m; ++i) {
    double torque = l->allowed[i], last = l->previous[i], step = l->steepest[i] * elapsed, most = l->largest[i];
    /* NaN fails every comparison */
    if (last - step <= torque && torque <= last + step && -most <= torque && torque <= most) continue;
    torque = smaller(larger(is_finite(torque) ? torque : 0.0, -most), most);
    l->allowed[i] = smaller(larger(torque, last - step), last + step);
  }
}

/* Whether a limit has changed a torque of the last tick. */
static int limits_bind(const limits *l)
{
  for (int i = 0; i < l->m; ++i) if (l->clamped[i]) return 1;
  return 0;
}

/* The torques of `limits_apply` are sent. */
void limits_keep(limits *l, long long now)
{
  copy(l->previous, l->allowed, l->m);
  for (int i = 0; i < l->m; ++i) l->clamped[i] = l->allowed[i] != l->wanted[i];
  l->last = now;
}
