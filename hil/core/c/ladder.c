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

/* Remembers the speeds of `ladder_watch`. A drive that brakes by itself grows faster if it does so for some ticks. */
void ladder_keep(ladder *l)
{
  l->fastest = l->next_fastest;
  for (int i = 0; i < l->m; ++i) {
    double speed = fabs(l->speeds[i]);
    l->still[i] = l->next_still[i];
    if (!(l->ramps[i] && l->sound[i])) l->loop_speed[i] = speed;
    else if (speed > smaller(l->loop_speed[i] + l->growth[i], l->ends[i])) ++l->growing[i];
    else l->growing[i] = 0;
  }
}
