// The format tokens: one long list of numbers for a language model, read in windows. Training,
// and validation or test files are named by these words, alone or within (train.bin,
// shakespeare_train.bin, fineweb_train_000001.bin); several of one kind are read one after the
// other, and no window reaches from one to the next. A .npy is an array of one axis; a .bin begins
// with llm.c's header (llmc/dataloader.h: 256 int32, of which 20240520, version 1 and a count of
// uint16; or 20240801, version 7 and one of uint32), or is nanoGPT's, tokens alone.
#include <algorithm>
#include <array>

#include "common/data/beneath.h"
#include "common/data/drawing.h"
#include "common/data/format.h"
#include "common/data/formats/npy.h"

namespace ringmaster::data {
namespace {

constexpr size_t kLlmcHeader = 1024;
struct LlmcKind {
  uint32_t magic, version;
  Number number;
};
constexpr LlmcKind kLlmcKinds[] = {{20240520, 1, Number::kUint16}, {20240801, 7, Number::kUint32}};

uint32_t WordAt(std::span<const uint8_t> head, size_t word) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) value = value << 8 | head[4 * word + i];
  return value;
}

Array ListOf(Number number, uint64_t begin, uint64_t tokens) {
  return {.column = {},
          .samples = tokens,
          .begin = begin,
          .stride = BytesOf(number),
          .number = number,
          .shape = {}};
}

// What a .bin has; without a header its type is `raw`.
StatusOr<Array> FindInBin(std::span<const uint8_t> head, uint64_t bytes, Number raw, bool* told) {
  for (const LlmcKind& kind : kLlmcKinds) {
    const bool is = bytes >= kLlmcHeader && head.size() >= 12 && WordAt(head, 0) == kind.magic;
    if (!is) continue;
    if (WordAt(head, 1) != kind.version) {
      return FailedPrecondition("its header is of version {}; {} is read", WordAt(head, 1),
                                kind.version);
    }
    const uint64_t there = (bytes - kLlmcHeader) / BytesOf(kind.number), said = WordAt(head, 2);
    if (there != said || (bytes - kLlmcHeader) % BytesOf(kind.number) != 0) {
      return FailedPrecondition(
          "its header says {} tokens of {}, {} bytes in all; it has {} bytes: it is truncated, or "
          "something follows",
          said, NameOf(kind.number), kLlmcHeader + said * BytesOf(kind.number), bytes);
    }
    *told = true;
    return ListOf(kind.number, kLlmcHeader, said);
  }
  if (bytes % BytesOf(raw) == 0) return ListOf(raw, 0, bytes / BytesOf(raw));
  return FailedPrecondition(
      "it has {} bytes, which is no whole number of {}: it is truncated, or data.token_type is "
      "another one",
      bytes, NameOf(raw));
}

StatusOr<Array> Find(const Content& content, bool* told) {
  const v1::TokenType type = content.source->token_type();
  const Number raw = type == v1::TOKEN_TYPE_UINT32 ? Number::kUint32 : Number::kUint16;
  Array tokens;
  if (content.name.ends_with(".npy")) {
    const auto read = [&](uint64_t offset, std::span<uint8_t> bytes) {
      return ReadExactly(content.descriptor, offset, bytes);
    };
    RING_ASSIGN_OR_RETURN(tokens, FindNpyArray("its array", 0, content.bytes, read));
    *told = true;
    if (!tokens.shape.empty() || IsFloat(tokens.number)) {
      return FailedPrecondition(
          "it has rows of {} in {}; tokens are whole numbers along one axis: save it as "
          ".reshape(-1).astype(np.uint16)",
          ShapeText(tokens.shape), NameOf(tokens.number));
    }
  } else {
    RING_ASSIGN_OR_RETURN(tokens, FindInBin(content.head, content.bytes, raw, told));
  }
  if (type == v1::TOKEN_TYPE_UNSPECIFIED || !*told || tokens.number == raw) return tokens;
  return FailedPrecondition("data.token_type is {}, the file says {}: leave the key out",
                            NameOf(raw), NameOf(tokens.number));
}

StatusOr<FileLayout> TokensLayout(const FileKind& kind, const Content& content) {
  const uint64_t window = content.source->window();
  if (window == 0) {
    return InvalidArgument(
        "data.window: missing; format tokens needs it: how many tokens a sample has; for example "
        "window: 1024");
  }
  FileLayout layout = {.bytes = content.bytes};
  const StatusOr<Array> found = Find(content, &layout.type_is_told);
  if (!found.ok()) return Annotate(found.status(), content.name);
  if (found->samples <= window) {
    return FailedPrecondition(
        "{} has {} tokens; a window of {} and the one that follows need {}: give data.window less",
        content.name, found->samples, window, window + 1);
  }
  for (const size_t later : {0, 1}) {
    const char* const column = later == 0 ? "tokens" : "targets";
    if (!content.Wants(column)) {
      layout.others.emplace_back(column);
      continue;
    }
    Array array = *found;
    array.column = column;
    array.split = *kind.split;
    array.samples = (found->samples - 1) / window;
    array.begin += later * found->stride;
    array.stride = window * found->stride;
    array.shape = {static_cast<int64_t>(window)};
    layout.arrays.push_back(std::move(array));
  }
  layout.tokens = *found;
  return layout;
}

// Each word alone, at the end of a name, and before numbers of one: of one way and ending.
std::vector<FileKind> TokenKinds() {
  std::vector<FileKind> kinds;
  int way = 0;
  for (const char* ending : {"bin", "npy"}) {
    for (const char* name : {"{}.{}", "*_{}.{}", "*_{}_*.{}"}) {
      for (const auto& [word, description] : {std::pair{"train", "training file"},
                                              {"val", "validation file"},
                                              {"test", "test file"}}) {
        kinds.push_back({.split = word[1] == 'r' ? Split::kTrain : Split::kTest,
                         .holds = Holds::kColumns,
                         .name = fmt::format(fmt::runtime(name), word, ending),
                         .description = description,
                         .way = way,
                         .needed = false});
      }
      ++way;
    }
  }
  return kinds;
}

// ---- sample data: each token follows from the two before it, but for one in eight ---------------

constexpr uint32_t kSampleVocabulary = 64;

std::string DrawTokens(uint64_t seed, Split split, uint64_t tokens) {
  const PhiloxStream stream(seed, PhiloxStream::Purpose::kSampleData, static_cast<uint64_t>(split),
                            0, "tokens");
  Dice dice(stream);
  std::string bytes;
  uint32_t before = 0, last = 1;
  for (uint64_t i = 0; i < tokens; ++i) {
    const uint32_t follows = (5 * last + 3 * before + 7) % kSampleVocabulary;
    before = last;
    last = dice.Below(8) == 0 ? dice.Below(kSampleVocabulary) : follows;
    bytes += {static_cast<char>(last & 0xFF), static_cast<char>(last >> 8)};
  }
  return bytes;
}

// As many tokens as samples are wanted, and the one that follows the last.
std::vector<SampleFile> TokenSampleFiles(uint64_t train, uint64_t test, uint64_t /*seed*/) {
  const auto file = [](const char* name, Split split, uint64_t tokens) {
    return SampleFile{
        .name = name, .split = split, .begin = 0, .end = tokens, .whole = [=](uint64_t seed) {
          return DrawTokens(seed, split, tokens + 1);
        }};
  };
  return {file("train.bin", Split::kTrain, train), file("val.bin", Split::kTest, test)};
}

}  // namespace

const Format& Tokens() {
  static const Format format = {.name = "tokens",
                                .classes = 0,
                                .may_be_gzipped = false,
                                .files = TokenKinds(),
                                .layout = TokensLayout,
                                .sample_files = TokenSampleFiles};
  return format;
}

}  // namespace ringmaster::data
