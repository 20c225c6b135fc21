#include "worker/backend/pjrt/tpus.h"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.h"

namespace ringmaster::pjrt {
namespace {

size_t Tiled(const graph::Shape& shape, graph::DType type = graph::DType::kFloat32) {
  return TiledBytes({.name = "x", .shape = shape, .dtype = type});
}

}  // namespace

TEST_CASE("TPUs: a tensor fills tiles by samples and channels, either way round") {
  CHECK(Tiled({128, 128}) == 128 * 128 * 4);
  CHECK(Tiled({8, 128}) == 8 * 128 * 4);
  CHECK(Tiled({128, 8}) == 8 * 128 * 4);  // samples along the lanes
  CHECK(Tiled({1, 1}) == 8 * 128 * 4);
  CHECK(Tiled({9, 129}) == 16 * 256 * 4);
  CHECK(Tiled({128, 32, 32, 3}) == 32 * 32 * (128 * 8) * 4);
  CHECK(Tiled({100, 32, 32, 64}) == 32 * 32 * (128 * 64) * 4);
  // Of 16 bits a tile has twice the rows.
  CHECK(Tiled({128, 8}, graph::DType::kBFloat16) == 16 * 128 * 2);
  CHECK(Tiled({10}) == 1024 * 4);
  CHECK(Tiled({}) == 1024 * 4);
}

TEST_CASE("TPUs: a host's are counted by their PCI numbers") {
  const TemporaryFolder folder;
  const auto add = [&](const std::string& slot, const char* vendor, const char* device) {
    const std::filesystem::path path = folder.path() + "/" + slot;
    std::filesystem::create_directories(path);
    std::ofstream(path / "vendor") << vendor << "\n";
    std::ofstream(path / "device") << device << "\n";
  };
  CHECK(CountTpus(folder.path()) == 0);
  CHECK(CountTpus(folder.path() + "/nowhere") == 0);
  add("0000:00:04.0", "0x1ae0", "0x0027");
  add("0000:00:05.0", "0x1ae0", "0x0027");
  add("0000:00:06.0", "0x1ae0", "0x0042");  // their network card
  add("0000:00:07.0", "0x10de", "0x0027");  // of another vendor
  add("0000:00:08.0", "nonsense", "0x0027");
  CHECK(CountTpus(folder.path()) == 2);
}

}  // namespace ringmaster::pjrt
