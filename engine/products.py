"""The products of one build by its matrices: what all of them together make and call.

Torch-free. Only matrices that are quantised, widened or multiplied in C are told apart: what others
make and call is part of every pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from engine.config import EngineConfig
from engine.model.config import ModelConfig
from engine.product import IN_C_ROWS, Dense, Product
from engine.recipe import Matrix, matrices, recipe_of
from engine.weight_format import ROW_MAJOR, WIDENED, crosses, lies_blocked


@dataclass(frozen=True)
class Products:
    """The products of one build by such matrices, and their number, by the name of the matrix in a
    layer, and `head`; and the embedding, where rows are looked up in codes."""

    by_name: Mapping[str, Counter[Dense | Product]]
    embedding: Product | None = None

    @classmethod
    def of(cls, config: EngineConfig, model: ModelConfig, forms: Collection[str]) -> Products:
        recipe = recipe_of(config.weights, model)
        if not recipe.quantises and not {WIDENED, ROW_MAJOR} & set(forms):
            return cls({})
        found: dict[str, Counter[Dense | Product]] = {}
        embedding = None
        for matrix in matrices(recipe, model):
            product = _product(matrix, config, forms)
            if product is None:
                continue
            if matrix.name == "embedding" and isinstance(product, Product):
                embedding = product
            if matrix.name != "embedding" or model.tied_head:
                name = "head" if matrix.layer is None else matrix.name
                found.setdefault(name, Counter())[product] += 1
        return cls(found, embedding)

    def beside(self, name: str, rows: int) -> int:
        """The most bytes that any layer's product by the matrix `name` makes."""
        return max((one.beside(rows) for one in self.by_name.get(name, ())), default=0)

    def more_calls(self, rows: int, sequences: int, dense: int) -> int:
        """Calls of a pass beyond those of one by dense matrices, each of which takes `dense`."""
        more = 0
        for name, several in self.by_name.items():
            multiplied = sequences if name == "head" else rows
            for product, times in several.items():
                more += times * (product.calls(multiplied) - dense)
        return more + self.look_up_calls

    @property
    def look_up_calls(self) -> int:
        """Calls to look rows up in codes beyond the one that a dense table takes."""
        return self.embedding.look_up_calls - 1 if self.embedding is not None else 0

    @property
    def quantised_head(self) -> bool:
        return any(isinstance(one, Product) for one in self.by_name.get("head", ()))


def _product(
    matrix: Matrix, config: EngineConfig, forms: Collection[str]
) -> Dense | Product | None:
    form = matrix.form(forms)
    if matrix.scheme is None or form is None:
        in_c = IN_C_ROWS[config.run.precision] if matrix.takes_rows_in_c(forms) else 0
        widened = matrix.is_widened(forms)
        return Dense(matrix.rows, matrix.columns, in_c, widened) if in_c or widened else None
    over = config.weights.crossover if crosses(matrix.scheme) else 0
    return Product(
        matrix.scheme,
        form,
        matrix.rows,
        matrix.columns,
        config.run.precision,
        over,
        matrix.is_compiled(forms),
        lies_blocked(form, matrix.rows, matrix.columns, forms),
        matrix.is_widened(forms),
    )
