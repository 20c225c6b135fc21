// The numbers of the coordinator: how long it waits, and how much it holds. Plain values. None of
// them ends a job: whose state is alive anywhere waits, with a reason.
#pragma once

#include <chrono>
#include <cstddef>

namespace ringmaster::coordinator {

struct Options {
  using Duration = std::chrono::milliseconds;

  Duration heartbeat{100};         // told to workers
  Duration silence{500};           // after which a member is out of the ring
  Duration lease{3'000};           // silence after which a worker's session is closed
  Duration attach_limit{10'000};   // from the stream to its Attach
  Duration fence_limit{60'000};    // who lives and has not acknowledged then is out
  Duration holder_wait{2'000};     // for the newest state to come back before an older one is taken
  Duration adopt_limit{5'000};     // for the members of a stored generation to attach again
  Duration idle_limit{5'000};      // of a member of a ring that runs nothing
  Duration stop_limit{30'000};     // from Cancel to the last JobStopped
  Duration release_limit{60'000};  // from Release to a heartbeat without job
  Duration settle{1'000};          // longer than any heartbeat is on its way
  Duration stall_limit{300'000};   // without any finished work: the ring is formed anew
  Duration show_every{500};        // phases of a start, while they last
  // What changes no state of a job: its figures, its place in the queue.
  Duration show_figures{100};
  Duration show_devices{1'000};  // figures of devices, of all workers together
  // From the first JobFinished; a job that has not ended then is shown to wait for it.
  Duration finish_patience{10'000};
  // After a state that could not be saved, or a last checkpoint that did not come; doubled each
  // time up to the most.
  Duration ask_again{5'000}, ask_again_most{300'000};
  // Of `ringctl bench`: one link, all sums, and the answers of those who are told to end.
  Duration bench_link_limit{60'000}, bench_limit{900'000}, bench_end_limit{10'000};
  Duration reach_limit{5'000};  // of a worker, for its successor's port to answer
  // Of a checkpoint, from its begin to its confirmation; longer by what its state takes at 5 MB/s.
  Duration upload_limit{900'000};

  // Of a member that a neighbour accused; above 300 ms, the neighbour's limit.
  [[nodiscard]] Duration accused_silence() const { return 2 * silence / 3; }

  size_t max_workers = 4'096;
  size_t max_unfinished_jobs = 1'000;
  size_t max_jobs = 20'000;             // with the finished ones, without those that were removed
  size_t max_removed_jobs = 1'000'000;  // whose keys are kept, a few hundred bytes each
  size_t max_spec_bytes = 1 << 20;
  size_t max_history = 500;  // events kept a job, >= 1
  int max_regroups = 32;     // kept a job
};

}  // namespace ringmaster::coordinator
