#include "cli/show/progress_view.h"

#include <catch2/catch.hpp>

#include "cli/show/render_watch.h"
#include "tests/cli/job_statuses.h"
#include "tests/cli/screen.h"

namespace ringmaster::cli {
namespace {

using namespace std::chrono_literals;
const Terminal kPlain = Terminal::Plain();

// `ms` after the job was submitted, on a terminal of `columns`.
Moment At(int64_t ms, size_t columns = 160) {
  return {std::chrono::steady_clock::time_point(1h + std::chrono::milliseconds(ms)),
          kSubmitted + ms, columns};
}

// What stands on a terminal after every status was shown a second after the one before.
std::string Shown(const std::vector<v1::JobStatus>& statuses, size_t columns) {
  ScreenProgress view(kPlain);
  Screen screen(columns);
  int64_t ms = 0;
  for (const v1::JobStatus& status : statuses) {
    screen.Write(view.Update(status, At(ms += 1000, columns)));
  }
  return screen.Text();
}

TEST_CASE("Watch: an epoch under way is a bar with its figures, and the job's ETA above it") {
  CHECK(Shown({RunningInFloat16()}, 160) ==
        "Epoch 2/3 - job ETA 20s\n"
        "  26/94 ━━━━━━────────────────── 9s 125ms/step - 512 samples/s - loss: 1.5400 - "
        "accuracy: 0.3600 - lr: 1.0e-03 - loss scale: 32768 (1 skipped)\n");
}

TEST_CASE("Watch: nothing is wider than the terminal, whatever its width") {
  for (size_t columns = 3; columns < 170; ++columns) {
    const std::string text = Shown({RunningInFloat16()}, columns);
    CAPTURE(columns, text);
    CHECK(std::count(text.begin(), text.end(), '\n') == 2);
  }
}

TEST_CASE("Watch: an epoch that is over stays with its totals and evaluations") {
  CHECK(Shown({RunningAt(1), RunningAt(94), RunningAt(95)}, 160) ==
        "Epoch 1/3\n"
        "  94/94 ━━━━━━━━━━━━━━━━━━━━━━━━ 12s 125ms/step - loss: 1.7480 - accuracy: 0.2820 - "
        "test accuracy: 0.2500 - lr: 1.0e-03\n"
        "Epoch 2/3 - job ETA 23s\n"
        "   1/94 ──────────────────────── 12s 125ms/step - 512 samples/s - loss: 1.7400 - "
        "accuracy: 0.2850 - lr: 1.0e-03\n");
}

TEST_CASE("Watch: a start is never silent: its phases come with their times") {
  CHECK(Shown({Queued()}, 80) == "QUEUED  needs 3 workers, 1 is free: 2 are missing\n");
  CHECK(Shown({Queued(), Starting(2)}, 80) ==
        "STARTING  2 workers\n"
        "  ✓ data_check     40ms  b\n"
        "  ✓ graph          80ms  b\n"
        "  … plan          120ms  b\n");
  const std::string text = Shown({Starting(2), RunningAt(1)}, 160);
  CHECK(text.rfind("started in 1.1s: data_check 40ms, graph 80ms, plan 120ms, bind 160ms, "
                   "initialize 200ms, ring 240ms, first_step 280ms\nEpoch 1/3",
                   0) == 0);
}

TEST_CASE("Watch: a job that stands still says for how long, and who is behind") {
  v1::JobStatus status = Running();
  status.mutable_workers(1)->set_applied(119);
  status.mutable_workers(1)->set_phase("reduce");
  const int64_t last = status.last_step_unix_ms();
  CHECK(LiveLines(status, 160, last + 4000, kPlain).front() == "Epoch 2/3 - job ETA 20s");
  CHECK(LiveLines(status, 160, last + 9000, kPlain).front() ==
        "Epoch 2/3 - job ETA 20s - no step for 9s, b in reduce");
}

TEST_CASE("Watch: four repaints a second at most, and none that changes nothing") {
  ScreenProgress view(kPlain);
  CHECK_FALSE(view.Update(RunningAt(1), At(0)).empty());
  CHECK(view.Update(RunningAt(2), At(249)).empty());
  CHECK_FALSE(view.Tick(At(250)).empty());
  CHECK(view.Tick(At(500)).empty());
  CHECK_FALSE(view.Tick(At(750, 100)).empty());  // the terminal has another width
}

TEST_CASE("Watch: a terminal that became narrower has wrapped the block, and nothing is left") {
  ScreenProgress view(kPlain);
  Screen screen(40);
  // 160 columns of text on 40 stand as wrapped as a terminal makes them.
  screen.Write(view.Update(RunningInFloat16(), At(0, 160)));
  screen.Write(view.Tick(At(1000, 40)));
  CHECK(screen.Text() ==
        "Epoch 2/3 - job ETA 20s\n"
        "  26/94 ━━────── 9s 125ms/step - 512 sam\n");
}

TEST_CASE("Watch: lines tell each change, each phase, each epoch, and every 10 s") {
  LineProgress view(kPlain);
  CHECK(view.Update(Queued(), At(0)) == "QUEUED  needs 3 workers, 1 is free: 2 are missing\n");
  CHECK(view.Update(Starting(0), At(1)) == "STARTING  data_check 40ms on b\n");
  CHECK(view.Update(Starting(1), At(2)) == "STARTING  data_check 40ms on b, done\n");
  CHECK(view.Tick(At(10'001)).empty());
  CHECK(view.Tick(At(10'002)) == "STARTING  graph 80ms on b\n");
  const std::string running = view.Update(RunningAt(94), At(10'003));
  CHECK(running.substr(running.find("RUNNING")) ==
        "RUNNING  epoch 1/3  step 94/282  33%  512 samples/s  loss 1.7480  accuracy 0.2820  "
        "ETA 24s\n");
  CHECK(view.Update(RunningAt(95), At(10'004)) ==
        "epoch 1/3  94/94 steps  loss 1.7480  accuracy 0.2820  test accuracy 0.2500\n");
  CHECK(view.Update(RunningAt(96), At(10'005)).empty());
}

TEST_CASE("Watch: json is one object a line, and a line that says nothing new is not repeated") {
  const auto view = MakeProgressView(Output::kJson, kPlain);
  const std::string text = view->Update(Running(), At(0));
  CHECK(text.front() == '{');
  CHECK(text.find('\n') == text.size() - 1);
  CHECK(view->Update(Running(), At(1)).empty());
  CHECK_FALSE(view->Update(RunningAt(121), At(1)).empty());
}

TEST_CASE("Watch: a job whose coordinator tells no epochs is measured by its total") {
  v1::JobStatus status = Running();
  status.clear_steps_per_epoch();
  CHECK(PlaceOf(status)->steps == 94);
  status.mutable_spec()->clear_epochs();
  status.mutable_spec()->set_steps(282);
  CHECK(PlaceOf(status)->count == 1);
  CHECK(PlaceOf(status)->steps == 282);
  CHECK_FALSE(PlaceOf(Queued()));
}

}  // namespace
}  // namespace ringmaster::cli
