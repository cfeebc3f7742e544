/* The torques of a tick: those of its source, within the limits, in steps of the wire. C asks for them in the ticks that it
   decides, and Python in the others. */

/* The last limits before a torque is sent: its size and its rate. */

/* A drive whose holding torque leaves less room does not keep the others from braking [share of its limit]. */
static const double ROOM = 0.1;

/* Scales what brakes the machine as a whole, then the change of the torques: axis by axis, a joint would speed up while
   its neighbour brakes. */
static void scale_together(torque_source *s, const double *held, double elapsed)
{
  double share = 1.0, change = 1.0;
  for (int i = 0; i < s->m; ++i) {
    double brake = s->wanted[i] - held[i], most = s->largest[i], room = most - copysign(held[i], held[i] * brake);
    if (fabs(brake) > room && room > ROOM * most) share = smaller(share, room / fabs(brake));
  }
  for (int i = 0; i < s->m; ++i) {
    double goal = held[i] + share * (s->wanted[i] - held[i]), step = s->steepest[i] * elapsed, away;
    s->goals[i] = goal = smaller(larger(goal, -s->largest[i]), s->largest[i]);
    away = fabs(goal - s->previous[i]);
    if (away > step) change = smaller(change, step / away);
  }
  if (share == 1.0 && change == 1.0) return;
  for (int i = 0; i < s->m; ++i) s->allowed[i] = s->previous[i] + change * (s->goals[i] - s->previous[i]);
}

/* The torques in `allowed`, finite and within the limits, from those in `wanted`; together where the machine comes to rest.
   The rate limit allows at most the step of one period, also after a gap, and a smaller one soon after a late tick. */
static void apply_limits(torque_source *s, long long now)
{
  double elapsed = smaller(seconds(now - s->last), s->period);
  copy(s->allowed, s->wanted, s->m);
  if (s->kind == STOP) scale_together(s, s->pose->held, elapsed);
  for (int i = 0; i < s->m; ++i) {
    double torque = s->allowed[i], last = s->previous[i], step = s->steepest[i] * elapsed, most = s->largest[i];
    /* NaN fails every comparison */
    if (last - step <= torque && torque <= last + step && -most <= torque && torque <= most) continue;
    torque = smaller(larger(is_finite(torque) ? torque : 0.0, -most), most);
    s->allowed[i] = smaller(larger(torque, last - step), last + step);
  }
}

/* Whether a limit has changed a torque of the last tick. */
static int limits_bind(const torque_source *s)
{
  for (int i = 0; i < s->m; ++i) if (s->clamped[i]) return 1;
  return 0;
}

/* The motion from the pose that other torques cause on purpose: those of the test, or none. An axis that its own motor has
   driven is stopped with more damping. */
static void find_away(torque_source *s)
{
  pose *p = s->pose;
  const proof *t = s->proof;
  int goes_on = t && s->tests && t->round_tick >= 0, caused = t && s->kind != CATCH;
  for (int i = 0; i < s->m; ++i) {
    p->away[i] = !caused ? 0.0 : goes_on ? t->ahead[i] : t->away[i];
    p->away_speed[i] = !caused ? -s->firmer * p->rates[i] : goes_on ? t->ahead_speed[i] : t->away_speed[i];
  }
}

/* Torques that hold the pose, in `torques` of the pose; not 0 where the model gives none. */
static int stand(torque_source *s)
{
  memset(s->pose->torques, 0, s->m * sizeof *s->pose->torques);
  find_away(s);
  return pose_stand(s->pose, s->learns);
}

/* Torques of the source, in `wanted`, which has those of the law; not 0 where the model gives none. The state
   is in the pose. `since`: time in the stage, `elapsed`: time since the last tick [s]; `decay`: what that leaves of a speed
   in a stop. Nothing is remembered before `torques_keep`. */
int torques_find(torque_source *s, double since, double elapsed, double decay)
{
  double *wanted = s->wanted, share = s->kind == BLEND ? smaller(1.0, since / s->ramp_time) : 0.0;
  int none = s->kind == LAW     ? HELD
             : s->kind == GUIDE ? pose_guide(s->pose)
             : s->kind == STOP  ? pose_stop(s->pose, decay, elapsed, s->previous, limits_bind(s))
                                : stand(s);
  if (none || s->kind == LAW) return none;
  if (s->tests) proof_torques(s->proof);
  for (int i = 0; i < s->m; ++i) {
    double torque = s->pose->torques[i];
    if (s->kind == HOLD) torque = 0.0 + torque + (s->tests ? s->proof->torques[i] : 0.0);
    wanted[i] = s->kind == BLEND ? (1.0 - share) * torque + share * wanted[i] : torque;
  }
  return HELD;
}

/* Torques in steps of the wire with the mean of those that are wanted: between two steps a light joint would drift. */
static void in_steps(torque_source *s)
{
  const double *most = s->pose->torque_limits;
  double *asked = s->carry.arguments[0], *carried = s->carry.results[0];
  for (int i = 0; i < s->m; ++i) asked[i] = smaller(larger(s->allowed[i] + s->rest[i], -most[i]), most[i]);
  for (int i = 0; i < s->m && s->encoding; ++i) carried[i] = tick_encode(&s->encoding[i], asked[i]);
  if (!s->encoding || !all_finite(carried, s->m))
    evaluate(&s->carry);
  for (int i = 0; i < s->m; ++i) { /* the torque in the frame of a limit may be above it, by rounding alone */
    s->torques[i] = smaller(larger(carried[i], -most[i]), most[i]);
    s->unsent[i] = asked[i] - s->torques[i];
  }
}

/* The torques that are sent, in `torques`, from those in `wanted`. Nothing is remembered before `torques_keep`. */
void torques_limit(torque_source *s, long long now)
{
  apply_limits(s, now);
  if (s->steps) in_steps(s);
  else copy(s->torques, s->allowed, s->m);
}

/* The torques of `torques_limit` are sent. */
void torques_keep(torque_source *s, long long now)
{
  copy(s->previous, s->allowed, s->m);
  for (int i = 0; i < s->m; ++i) s->clamped[i] = s->allowed[i] != s->wanted[i];
  s->last = now;
  if (s->kind == GUIDE) pose_keep_guide(s->pose);
  else if (s->kind == STOP) pose_keep_stop(s->pose);
  else if (s->kind != LAW) pose_keep_stand(s->pose);
  if (s->steps) copy(s->rest, s->unsent, s->m);
  if (!s->tests) return;
  proof_sent(s->proof, s->torques);
  proof_keep(s->proof);
}
