#include "cli/show/check_report.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "cli/show/names.h"

namespace ringmaster::cli {
namespace {

struct Wording {
  const char* word;
  const char* json;
  Colour colour;
};

Wording WordingOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return {"ok", "OK", Colour::kGreen};
    case Verdict::kSkipped:
      return {"skipped", "SKIPPED", Colour::kPlain};
    case Verdict::kWarning:
      return {"warning", "WARNING", Colour::kYellow};
    case Verdict::kFailed:
      return {"failed", "FAILED", Colour::kRed};
  }
  return {"failed", "FAILED", Colour::kRed};
}

}  // namespace

bool AllGood(const Findings& findings) {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& finding) { return finding.verdict == Verdict::kFailed; });
}

std::string RenderFindings(const Findings& findings, const Terminal& terminal) {
  std::string text;
  std::map<Verdict, size_t> counts;
  for (const Finding& finding : findings) {
    const Wording look = WordingOf(finding.verdict);
    ++counts[finding.verdict];
    const std::string about = finding.about.empty() ? "" : finding.about + ": ";
    text += fmt::format("{}{:{}} {:<12} {}{}\n", terminal.Paint(look.colour, look.word), "",
                        7 - std::strlen(look.word), finding.check, about, finding.found);
    if (!finding.remedy.empty()) text += fmt::format("{:21}to do: {}\n", "", finding.remedy);
  }
  return text + fmt::format("{} failed, {}, {} skipped, {} ok\n", counts[Verdict::kFailed],
                            Count(counts[Verdict::kWarning], "warning"), counts[Verdict::kSkipped],
                            counts[Verdict::kOk]);
}

Json ToJson(const Findings& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"verdict", WordingOf(finding.verdict).json},
                    {"check", finding.check},
                    {"about", Known(!finding.about.empty(), finding.about)},
                    {"found", finding.found},
                    {"remedy", Known(!finding.remedy.empty(), finding.remedy)}});
  }
  return {{"ok", AllGood(findings)}, {"findings", list}};
}

}  // namespace ringmaster::cli
