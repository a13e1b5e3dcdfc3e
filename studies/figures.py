"""The figures of studies' pages."""
import numpy as np

from nanoencoder.figures import panels, style_of


def ladder(shown):
    """A line and its band over seeds an arm, by length; bands may leave the panel.

    shown  [(title, {arm: [(tokens, mean, low, high)]}, {floor's name: value})]"""
    drawn, axes = panels([title for title, *_ in shown], rows=1 if len(shown) <= 3 else 2)
    arms = max((lines for _, lines, _ in shown), key=len)
    handles = {}
    for title, lines, floors in shown:
        ax, means = axes[title], [mean for values in lines.values() for _, mean, *_ in values]
        least, most, size = min(means), max(means), max(means) - min(means) or 1.0
        for arm, values in lines.items():
            x, mean, low, high = np.array(values).T
            colour, dash = style_of(arm)
            handles[arm], = ax.plot(x / 1e6, mean, f'o{dash}', color=colour, markersize=4, linewidth=1.8)
            ax.fill_between(x / 1e6, low, high, color=colour, alpha=0.16, linewidth=0)
        near = {name: y for name, y in floors.items() if least - 0.6 * size < y < most + 0.6 * size}
        for name, y in near.items():
            ax.axhline(y, color='0.6', linewidth=1, linestyle='--')
            start, end = (min(abs(values[k][1] - y) for values in lines.values()) for k in (0, -1))
            x, side = (0.995, 'right') if end > start else (0.005, 'left')     # where no line is near
            ax.annotate(f'{name} {y:.1f}', (x, y), xycoords=ax.get_yaxis_transform(), fontsize=8, color='0.2',
                        ha=side, va='bottom')
        far = [f'{name} {y:.1f} {"↑" if y > most else "↓"}' for name, y in floors.items() if name not in near]
        ax.set_title('\n'.join(far), loc='right', fontsize=8, color='0.2')
        low, high = ax.get_ylim()
        ax.set_ylim(max(low, least - 0.7 * size), min(high, most + 0.7 * size))
        ticks = sorted({x / 1e6 for values in lines.values() for x, *_ in values})
        ax.set_xscale('log', base=2)
        ax.set_xticks(ticks, [f'{tick:.1f}' for tick in ticks])
        ax.set_xlabel('million tokens of pretraining')
        ax.minorticks_off()
    drawn.legend([handles[arm] for arm in arms], arms, loc='lower center', bbox_to_anchor=(0.5, 1), ncol=4)
    return drawn
