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
