// The parts of a report on a comparison.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/report/chart.h"
#include "cli/report/compare_file.h"
#include "cli/report/document.h"

namespace lockstep::cli {

using Blocks = std::vector<Block>;

// All cases that are given have arms and a speed-up; the first is the one in the headline.
using Cases = std::vector<const CaseFigures*>;

// `draw(alternative, width)` gives the SVG.
template <class Draw>
Figure drawn(std::string title, const std::string& alternative, Table table, Draw draw) {
  return {.title = std::move(title),
          .alternative = alternative,
          .wide = draw(alternative, kWideChart),
          .narrow = draw(alternative, kNarrowChart),
          .table = std::move(table)};
}

void add_result(Blocks& blocks, const CompareFile& file, const Cases& cases);
void add_steps(Blocks& blocks, const CompareFile& file, const Cases& cases);
void add_timelines(Blocks& blocks, const Cases& cases);
void add_growth(Blocks& blocks, const Cases& cases);
void add_bandwidth(Blocks& blocks, const Cases& cases);
void add_other_links(Blocks& blocks, const CaseFigures& figures);
void add_proof(Blocks& blocks, const Cases& cases);
void add_machine(Blocks& blocks, const CompareFile& file, const Cases& cases);
void add_claims(Blocks& blocks, const CompareFile& file);
void add_repeat(Blocks& blocks, const CompareFile& file, const Cases& cases);

}  // namespace lockstep::cli
