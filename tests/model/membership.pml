/* The membership protocol of docs/regroup.md as a model for spin: fence, acknowledge, start at the
 * highest applied step, fetch what is missing or follow without it, and the rule that a frame of
 * another generation never enters a sum. scripts/check_model compiles it as it is, which must be
 * clean, and with one rule left out at a time (FRAMES_OF_ANY_GENERATION, APPLIES_AFTER_FENCE,
 * STARTS_ANYWHERE, TERM_NOT_DURABLE, FOLLOWER_ACKNOWLEDGES), which must be found. NEVER_CATCHES_UP
 * claims that no run reaches the end with a worker that was killed, NEVER_WHOLE that none who
 * followed through a step has the state; these must be refuted, or the model could be clean because
 * it does nothing. ONE_AHEAD begins where one worker has applied a step more than the others, as a
 * generation before may have left them, so that who follows is fenced within the bounds.
 *
 * A worker is (applied, at, fenced, started): it holds the state of step `applied`, is at step `at`,
 * obeyed the fence of generation `fenced`, and runs generation `started` (0: none). It follows while
 * it is at a later step than the one that it holds: it has no shards, takes part in sums without
 * applying them, and may at any time take the state of a member of its generation that has applied
 * exactly the step that it is at. A contribution to a step is a stamp: contributed[w * STEPS + k] =
 * the generation in which worker w offered its shards of step k (none of its own when it follows). A
 * worker goes on from step k when the contributions of all members of its generation carry that
 * generation. Messages may be lost, workers killed (they come back without any state, as new
 * incarnations do), a coordinator may begin a new generation at any moment, and two may be active at
 * once, which the durable term keeps apart: that is what `generations` counts over all of them.
 *
 * Left out: shards (a worker stands for its shards), clocks (they decide speed only), the bytes of a
 * fetch (it is atomic: a fetch that breaks off is a fetch that did not happen).
 */
#ifndef GENERATIONS
#define GENERATIONS 2  /* of all coordinators together */
#endif
#ifndef STEPS
#define STEPS 2
#endif
#ifndef KILLS
#define KILLS 1
#endif
#ifndef COORDINATORS
#define COORDINATORS 1
#endif

#define WORKERS 3

mtype = { Fence, Start };

chan to_worker[WORKERS] = [2] of { mtype, byte /* generation */, byte /* start step */ };
chan to_coordinator[COORDINATORS] = [4] of { byte /* worker */, byte /* generation */, byte /* applied */ };

byte applied[WORKERS];
byte at[WORKERS];
byte fenced[WORKERS];
byte started[WORKERS];
byte contributed[WORKERS * STEPS];

byte generations = 0;            /* handed out; durable: it never goes back */
byte members[GENERATIONS + 1];   /* bit set of each generation, written before Start is sent */
byte holders[GENERATIONS + 1];   /* those of them that are taken to hold the start step */
byte owner[GENERATIONS + 1];     /* the coordinator that began it */
byte kills = KILLS;
#ifdef TERM_NOT_DURABLE
bool forgotten = false;
#endif

#define Is_member(g, w) ((members[g] & (1 << (w))) != 0)
#define Is_holder(g, w) ((holders[g] & (1 << (w))) != 0)
#define Follows(w) (at[w] > applied[w])
#define Stamp(w, k) contributed[(w) * STEPS + (k)]

/* Whether worker w keeps generation g from applying step k no longer. */
#ifdef FRAMES_OF_ANY_GENERATION
#define Has_contributed(g, w, k) (!Is_member(g, w) || Stamp(w, k) != 0)
#else
#define Has_contributed(g, w, k) (!Is_member(g, w) || Stamp(w, k) == g)
#endif
#define Contributed_in(g, w, k) (!Is_member(g, w) || Stamp(w, k) == g)

/* Members of one running generation are never further apart than one step. */
#define Close_to(w) \
  assert(started[w] != started[me] || !Is_member(started[me], w) || \
         (at[w] + 1 >= at[me] && at[w] <= at[me] + 1))

/* Worker w took part in the last generation up to the last step. */
#define At_the_end(w) (applied[w] == STEPS && started[w] == GENERATIONS)

#define Can_give(g, w, k) ((w) != me && Is_member(g, w) && applied[w] == k)
#define Somebody_gives(g, k) (Can_give(g, 0, k) || Can_give(g, 1, k) || Can_give(g, 2, k))

#ifdef FOLLOWER_ACKNOWLEDGES
#define Says_applied(w) at[w]
#else
#define Says_applied(w) applied[w]
#endif

proctype Worker(byte me) {
  byte g, k;
  do
  :: atomic {
       to_worker[me] ? Fence(g, k) ->
       if
       :: g > fenced[me] ->
            fenced[me] = g;
#ifndef APPLIES_AFTER_FENCE
            started[me] = 0;  /* it stops applying before it acknowledges */
#endif
            if
            :: nfull(to_coordinator[owner[g]]) ->
                 to_coordinator[owner[g]] ! me, g, Says_applied(me)
            :: true  /* lost */
            fi;
#ifndef APPLIES_AFTER_FENCE
            at[me] = applied[me]  /* what it has got of a later state goes */
#endif
       :: else
       fi;
       g = 0; k = 0
     }
  :: atomic {
       to_worker[me] ? Start(g, k) ->
       if
       :: g == fenced[me] && started[me] < g ->
            assert(applied[me] <= k);  /* nobody is ahead of the start step */
            /* who has shards because it is taken to have the state has it */
            assert(!Is_holder(g, me) || applied[me] == k);
            if
            :: applied[me] == k -> started[me] = g
            :: applied[me] < k && Somebody_gives(g, k) ->
                 applied[me] = k;
                 at[me] = k;
                 started[me] = g
            :: applied[me] < k ->
                 at[me] = k;
                 started[me] = g
            :: else
            fi
       :: else
       fi;
       g = 0; k = 0
     }
  :: atomic {  /* offers its shards of the next step, or nothing of its own */
       started[me] != 0 && at[me] < STEPS && Stamp(me, at[me]) != started[me] ->
       Stamp(me, at[me]) = started[me]
     }
  :: atomic {  /* the sum is complete: applies it, or only has taken part in it */
       started[me] != 0 && at[me] < STEPS && Stamp(me, at[me]) == started[me] &&
       Has_contributed(started[me], 0, at[me]) &&
       Has_contributed(started[me], 1, at[me]) &&
       Has_contributed(started[me], 2, at[me]) ->
       assert(Contributed_in(started[me], 0, at[me]) &&
              Contributed_in(started[me], 1, at[me]) &&
              Contributed_in(started[me], 2, at[me]));
       applied[me] = (Follows(me) -> applied[me] : applied[me] + 1);
       at[me]++;
       Close_to(0); Close_to(1); Close_to(2);
#ifdef NEVER_CATCHES_UP
       assert(kills > 0 || !At_the_end(0) || !At_the_end(1) || !At_the_end(2))
#endif
     }
  :: atomic {  /* who follows has all of the state */
       started[me] != 0 && Follows(me) && Somebody_gives(started[me], at[me]) ->
#ifdef NEVER_WHOLE
       assert(at[me] == 0 || Stamp(me, at[me] - 1) != started[me]);
#endif
       applied[me] = at[me]
     }
  :: atomic {  /* killed: a new incarnation knows nothing */
       kills > 0 ->
       kills--;
       applied[me] = 0; at[me] = 0; fenced[me] = 0; started[me] = 0;
       do
       :: to_worker[me] ? _, _, _
       :: empty(to_worker[me]) -> break
       od
     }
  :: to_worker[me] ? _, _, _  /* a message is lost */
  od
}

proctype Coordinator(byte id) {
  byte g, acknowledged, hold, k, w, told, step;
again:
  atomic {
#ifdef TERM_NOT_DURABLE
    if
    :: !forgotten && generations > 0 -> forgotten = true; generations--
    :: true
    fi;
#endif
    if
    :: generations < GENERATIONS
    :: else -> goto done
    fi;
    generations++;
    g = generations;
    owner[g] = id;
    members[g] = 0;
    holders[g] = 0;
    acknowledged = 0;
    hold = 0;
    k = 0;
    w = 0;
    do
    :: w < WORKERS ->
         if
         :: nfull(to_worker[w]) -> to_worker[w] ! Fence(g, 0)
         :: true
         fi;
         w++
    :: else -> break
    od
  };
  do
  :: atomic {
       to_coordinator[id] ? w, told, step ->
       if
       :: told == g ->
            acknowledged = acknowledged | (1 << w);
            hold = (step > k -> 0 : hold);
            k = (step > k -> step : k);
            hold = (step == k -> hold | (1 << w) : hold)
       :: else
       fi;
       w = 0; told = 0; step = 0
     }
  :: atomic {
       acknowledged != 0 ->
       members[g] = acknowledged;
       holders[g] = hold;
#ifdef STARTS_ANYWHERE
       k = 0;
#endif
       w = 0;
       do
       :: w < WORKERS ->
            if
            :: Is_member(g, w) && nfull(to_worker[w]) -> to_worker[w] ! Start(g, k)
            :: true
            fi;
            w++
       :: else -> break
       od;
       break
     }
  :: goto again  /* another suspicion, or a restart, while it fences */
  od;
  goto again;    /* or while the ring runs */
done:
  skip
}

init {
  atomic {
    byte i = 0;
#ifdef ONE_AHEAD
    applied[0] = 1;
    at[0] = 1;
#endif
    do
    :: i < WORKERS -> run Worker(i); i++
    :: else -> break
    od;
    run Coordinator(0);
    if
    :: COORDINATORS == 2 -> run Coordinator(1)
    :: else
    fi
  }
}
