#include "cli/progress_view.h"

#include "cli/json.h"
#include "cli/line_progress.h"
#include "cli/screen_progress.h"

namespace ringmaster::cli {
namespace {

// One object a line, none twice in a row.
class JsonProgress final : public ProgressView {
 public:
  std::string Update(const v1::JobStatus& status, const Moment&) override {
    std::string line = ToJson(status).dump() + "\n";
    if (line == newest_) return "";
    newest_ = line;
    return line;
  }
  std::string Tick(const Moment&) override { return ""; }
  std::string End(const Moment&) override { return ""; }

 private:
  std::string newest_;
};

}  // namespace

std::unique_ptr<ProgressView> MakeProgressView(Output output, const Terminal& terminal) {
  if (output == Output::kJson) return std::make_unique<JsonProgress>();
  if (terminal.repaints()) return std::make_unique<ScreenProgress>(terminal);
  return std::make_unique<LineProgress>(terminal);
}

}  // namespace ringmaster::cli
